"""The argument of functions that build a model, and the features that a model takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from shared_core.feature_layout import FeatureLayout
from shared_core.nearest import nearest
from trainer_module.config import TrainerConfig

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from tensorflow_metadata.proto.v0 import schema_pb2

LabelKind = Literal["binary", "multiclass", "regression"]
# tft.TFTransformOutput; only the room `tfx` imports TFT.
TransformOutput: TypeAlias = Any


@dataclasses.dataclass(frozen=True)
class ModelContext:
    """The argument of `model_fn(context) -> keras.Model`.

    The model takes a dict {feature name: tensor `[rows, ...]`} of `feature_spec` and returns
    `[rows, outputs]`: probabilities for a binary or multiclass label, unless the loss takes logits.

    Attributes:
        feature_spec: Transformed feature to tf.io.FixedLenFeature: the model's inputs, without
            label, weight, missing-value mask and passed-through features. Token ids have the shape
            [None]: their length differs from batch to batch, and 0 is padding.
        transformed_schema: schema_pb2.Schema of all transformed features.
        layout: Names of the packed positions; None if Transform writes no layout.
        label: Name of the label.
        label_kind: binary, multiclass or regression.
        outputs: Number of outputs that fit the label: classes, or 1.
        id_sizes: Integer feature to (smallest id, number of ids), for embeddings. `packed_int` is
            not in it: `layout.of("packed_int")` has the ids of each of its columns.
        config: The whole training configuration.
        total_steps: Optimizer steps of the whole run, for schedules such as that of `PrunedDense`;
            0 if unknown.
    """

    feature_spec: dict[str, tf.io.FixedLenFeature]
    transformed_schema: schema_pb2.Schema
    layout: FeatureLayout | None
    label: str
    label_kind: LabelKind
    outputs: int
    id_sizes: dict[str, tuple[int, int]]
    config: TrainerConfig
    total_steps: int = 0


ModelFn: TypeAlias = Callable[[ModelContext], "keras.Model"]


def inputs_of(model: keras.Model, context: ModelContext) -> list[str]:
    """Return the transformed features that the model takes; all if it does not declare inputs."""
    tensors = getattr(model, "inputs", None)
    if not tensors:
        return list(context.feature_spec)
    structure = model.input
    names = list(structure) if isinstance(structure, dict) else [t.name for t in tensors]
    for name in names:
        if name not in context.feature_spec:
            if context.layout is not None and name in context.layout.passthrough:
                raise ValueError(
                    f"trainer.model_fn={context.config.model_fn!r} returned a model with an input "
                    f"{name!r}, which is in features.passthrough: models cannot use such columns. "
                    "Put it into a group of features instead."
                )
            raise ValueError(
                f"trainer.model_fn={context.config.model_fn!r} returned a model with an input "
                f"{name!r} that is not a transformed feature; {nearest(name, context.feature_spec)}"
            )
    return names
