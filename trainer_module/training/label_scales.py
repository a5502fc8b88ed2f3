"""Choose the scale of a regression's label."""

from __future__ import annotations

from typing import Literal

from absl import logging

from trainer_module.baselines.linear_start import has_linear_start
from trainer_module.config import TrainerConfig
from trainer_module.data.input_pipeline import DataSummary
from trainer_module.data.label_scale import LabelScale, find_label_scale, has_logarithm
from trainer_module.model.model_context import ModelContext


def label_scales(context: ModelContext, summary: DataSummary) -> list[LabelScale | None]:
    """Return the candidate scales of a regression's label; two if a linear model decides."""
    config = context.config
    if context.label_kind != "regression":
        if config.label_scale in ("z_score", "log"):
            raise ValueError(
                f"trainer.label_scale={config.label_scale!r}: trainer.label={context.label!r} is "
                f"{context.label_kind}, which has no scale; leave it out."
            )
        return [None]

    def find(wanted: Literal["auto", "none", "z_score", "log"]) -> LabelScale | None:
        return find_label_scale(
            wanted,
            summary.label_moments,
            loss=config.loss,
            own_model=config.model_fn is not None,
            whole=summary.label_is_whole,
            label=context.label,
        )

    scale = find(config.label_scale)
    if scale is None or config.label_scale != "auto" or not has_linear_start(context):
        return [scale]
    if not has_logarithm(summary.label_moments, whole=summary.label_is_whole):
        return [scale]
    return [find("z_score"), find("log")]


def check_label_scale(config: TrainerConfig, scale: LabelScale | None, *, outputs: int) -> None:
    """Raise ValueError if the model's number of outputs does not allow a scale; log the scale."""
    if scale is None:
        return
    if outputs > 1:
        raise ValueError(
            f"trainer.label_scale={config.label_scale!r}: trainer.model_fn={config.model_fn!r} "
            f"returned a model with {outputs} outputs, and the scale is of one; leave it out."
        )
    logging.info(
        "The label is trained as %s; metrics and predictions are in its own unit.",
        "z-score" if scale.name == "z_score" else "z-score of its logarithm",
    )
