"""Attributions of the model's predictions to columns: the YAML's `explain:` section."""

from __future__ import annotations

from pydantic import Field

from components.input_gradients import MOST_ROWS, MOST_STEPS
from pipeline.config.section import Section


class ExplainConfig(Section):
    """Attribute the model's predictions for sampled rows to columns, by integrated gradients."""

    rows: int = Field(
        default=2000,
        ge=1,
        le=MOST_ROWS,
        description="Number of rows of the evaluated split to explain: those with the smallest "
        "hashes, so the same ones in each run.",
    )
    steps: int = Field(
        default=50,
        ge=1,
        le=MOST_STEPS,
        description="Points between the baseline and a row at which the gradient is computed. More "
        "points are more exact and take longer.",
    )
