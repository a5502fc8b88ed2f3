"""Build a ModelContext and the class weights from settings and transformed data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from shared_core.feature_layout import FeatureLayout
from shared_core.nearest import nearest
from trainer_module.config import TrainerConfig
from trainer_module.data.input_pipeline import DataSummary, Examples
from trainer_module.data.row_source import Feature, PaddedFeature
from trainer_module.model.model_context import LabelKind, ModelContext, TransformOutput

_LABEL_CLASSES = "label_classes"
"""Asset of a transform graph that lists the classes of a text label, one per line."""


class TransformedData(NamedTuple):
    """The output of Transform for this trainer."""

    transform_output: TransformOutput
    layout: FeatureLayout | None
    train: Examples
    eval_files: tuple[str, ...]


def unsized_ids(data: TransformedData) -> list[str]:
    """Return the integer features whose range is in neither the layout nor the schema."""
    sized = set(_domains(data.transform_output))
    if data.layout is not None:
        sized |= {column.output for column in data.layout.columns}
        sized |= {each.name for each in (*data.layout.images, *data.layout.tokens)}
    return [
        name
        for name, feature in data.train.feature_spec.items()
        if feature.dtype.is_integer
        and name not in sized
        and name not in (data.train.label, data.train.weight)
    ]


def model_context(
    config: TrainerConfig, data: TransformedData, summary: DataSummary
) -> ModelContext:
    """Return the context that a model is built from."""
    label, layout = data.train.label, data.layout
    declared = layout.label.kind if layout and layout.label and layout.label.name == label else None
    kind = _label_kind(config, declared, data.train.feature_spec[label], summary)
    if kind == "binary" and not (summary.label_min == 0 and summary.label_max == 1):
        raise ValueError(
            f"trainer.label={label!r} is binary but goes from {summary.label_min:g} to "
            f"{summary.label_max:g}: make it 0 or 1, or choose a loss for another kind of label."
        )
    if kind == "multiclass" and not (summary.label_is_whole and summary.label_min >= 0):
        raise ValueError(
            f"trainer.label={label!r} is multiclass but goes from {summary.label_min:g} to "
            f"{summary.label_max:g} or holds fractions: make it 0, 1, ..., classes - 1."
        )
    outputs = math.prod(data.train.feature_spec[label].shape) if kind == "regression" else 1
    if kind == "multiclass":
        domain = _domains(data.transform_output).get(label, (0, 0))
        outputs = max(int(summary.label_max) + 1, sum(domain))
    # One more id than in the training rows, for unseen ids.
    seen = {name: (first, count + 1) for name, (first, count) in summary.id_sizes.items()}
    features = {
        name: (
            tf.io.FixedLenFeature([None], feature.dtype)
            if isinstance(feature, PaddedFeature)
            else feature
        )
        for name, feature in data.train.feature_spec.items()
        if name not in (label, data.train.weight)
    }
    return ModelContext(
        feature_spec=features,
        transformed_schema=data.transform_output.transformed_metadata.schema,
        layout=layout,
        label=label,
        label_kind=kind,
        outputs=outputs,
        id_sizes={**_domains(data.transform_output), **seen},
        config=config,
    )


def _label_kind(
    config: TrainerConfig,
    declared: str | None,
    feature: Feature,
    summary: DataSummary,
) -> LabelKind:
    loss = (config.loss or "").rpartition(".")[2].lower().replace("_", "")
    if "categorical" in loss:
        return "multiclass"
    if "binary" in loss or "hinge" in loss:
        return "binary"
    if any(part in loss for part in ("squared", "absolute", "huber", "cosh", "mse", "mae")):
        return "regression"
    if declared in ("binary", "multiclass", "regression"):
        return declared
    if summary.label_is_whole and summary.label_min == 0 and summary.label_max == 1:
        return "binary"
    if feature.dtype.is_integer and summary.label_min >= 0:
        return "multiclass"
    return "regression"


def _domains(transform_output: TransformOutput) -> dict[str, tuple[int, int]]:
    """Return a dict from integer feature to (smallest id, number of ids), from the schema."""
    schema = transform_output.transformed_metadata.schema
    return {
        feature.name: (feature.int_domain.min, feature.int_domain.max - feature.int_domain.min + 1)
        for feature in schema.feature
        if feature.HasField("int_domain") and feature.int_domain.max > feature.int_domain.min
    }


def find_class_weights(
    context: ModelContext, data: TransformedData, summary: DataSummary
) -> dict[int, float] | Mapping[int | str, float] | str | None:
    """Return the weights by class number, which multiply row weights in training alone.

    For a regression it is the unchanged setting.
    """
    setting = context.config.class_weight
    if not setting or context.label_kind == "regression":
        return setting
    names = class_names(data.transform_output)
    if setting == "balanced":
        sums = summary.class_sums
        if sums is None:
            raise ValueError(
                f"trainer.class_weight='balanced': trainer.label={context.label!r} has more than "
                "10,000 values; give weights by class."
            )
        found = balanced(sums)
    else:
        assert not isinstance(setting, str)
        found = _by_number(setting, names, outputs=context.outputs, kind=context.label_kind)
    shown = [
        f"{names[c] if c < len(names) else c} {weight:.4g}" for c, weight in sorted(found.items())
    ]
    logging.info(
        "Weights of classes in training, not in evaluation: %s",
        ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else ""),
    )
    return found


def balanced(sums: Mapping[int, float]) -> dict[int, float]:
    """Return  W / (K W_c)  for each class c from the sums W_c of its row weights, W = Σ_c W_c.

    K is the number of classes with weight, so that each of them weighs W / K in total. Without row
    weights this equals `class_weight="balanced"` of scikit-learn.
    """
    positive = {c: of_class for c, of_class in sums.items() if of_class > 0}
    share = sum(positive.values()) / len(positive)
    return {c: share / of_class for c, of_class in positive.items()}


def _by_number(
    setting: Mapping[int | str, float], names: Sequence[str], *, outputs: int, kind: str
) -> dict[int, float]:
    """Return weights by class number from weights by number or name.

    `names` are the classes of a string label by number; empty for other labels.
    """
    classes = 2 if kind == "binary" else outputs
    found: dict[int, float] = {}
    for key, weight in setting.items():
        if isinstance(key, str):
            if key not in names:
                known = nearest(key, names) if names else "the label's classes have no names"
                raise ValueError(
                    f"trainer.class_weight: {key!r} is not a class of the label; {known}; or use "
                    f"a number from 0 to {classes - 1}"
                )
            number = names.index(key)
        else:
            number = key
        if number >= classes:
            raise ValueError(
                f"trainer.class_weight: the label has no class {number}; its classes are 0 to "
                f"{classes - 1}"
            )
        if number in found:
            raise ValueError(
                f"trainer.class_weight: class {number} ({names[number]!r}) is listed by number and "
                "by name; remove one"
            )
        found[number] = weight
    return found


def class_names(transform_output: TransformOutput | None) -> list[str]:
    """Return the classes of a string label in the order of their numbers; empty for others."""
    if transform_output is None or not transform_output.vocabulary_file_by_name(_LABEL_CLASSES):
        return []
    return [name.decode() for name in transform_output.vocabulary_by_name(_LABEL_CLASSES)]
