"""Build a ModelContext from the transformed data."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from shared_core.feature_layout import FeatureLayout
from trainer_module.config import TrainerConfig
from trainer_module.data.input_pipeline import DataSummary, Examples
from trainer_module.model.model_context import LabelKind, ModelContext, TransformOutput


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
    """Return the context that a model is built from.

    Raises:
        ValueError: The label's values do not fit its kind.
    """
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
        name: feature
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
    feature: tf.io.FixedLenFeature,
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
