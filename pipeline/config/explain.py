"""Attributions of the model's predictions to columns: the YAML's `explain:` section."""

from __future__ import annotations

import pydantic
from pydantic import Field

from components.input_gradients.options import MOST_ROWS, MOST_STEPS, check_options
from pipeline.config.section import Section


class ExplainConfig(Section):
    """Attribute the model's predictions for sampled rows to columns, by integrated gradients."""

    rows: int = Field(
        default=2000,
        ge=1,
        le=MOST_ROWS,
        description=(
            "Number of rows of the evaluated split to explain: those with the smallest hashes, so "
            "the same ones in each run."
        ),
    )
    slices: tuple[str, ...] = Field(
        default=(),
        description=(
            "Raw columns with one value per row. The mean attributions are also computed for each "
            "value of these columns."
        ),
    )
    steps: int = Field(
        default=50,
        ge=1,
        le=MOST_STEPS,
        description=(
            "Points between the baseline and a row at which the gradient is computed. More points "
            "are more exact and take longer."
        ),
    )

    @pydantic.model_validator(mode="after")
    def _slices_differ(self) -> ExplainConfig:
        check_options(rows=self.rows, slices=self.slices, steps=self.steps)
        return self
