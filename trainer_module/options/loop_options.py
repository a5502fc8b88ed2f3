"""Options for the length of a training, the reading of its data and the grouping of its steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.common.json_values import Json
from trainer_module.options.settings import RUN_LENGTH, RUNTIME_ONLY, Settings, at_least_one


class RunLength(Settings):
    """Length of a training, and number of steps per call of the graph."""

    epochs: Annotated[int | None, RUN_LENGTH] = Field(
        default=None,
        description=(
            "Passes over the training rows. Give epochs or steps; null and no steps: 10 epochs."
        ),
    )
    steps: Annotated[int | None, RUN_LENGTH] = Field(
        default=None, description="Optimizer steps. Give epochs or steps."
    )
    steps_per_loop: Annotated[int | Literal["auto"], RUNTIME_ONLY] = Field(
        default="auto",
        description=(
            "Optimizer steps per call of the graph; auto: as many as take about 0.5 seconds."
        ),
    )

    @field_validator("epochs", "steps", "steps_per_loop", mode="before")
    @classmethod
    def _check_length_counts(cls, value: object) -> object:
        return at_least_one(value)

    @model_validator(mode="after")
    def _check_one_length(self) -> RunLength:
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs={self.epochs} and steps={self.steps}: give one of them")
        return self


class LoopOptions(RunLength):
    """The options of a `TrainingLoop`; see there."""

    batch_size: int | None = None
    shuffle: bool | None = None
    seed: int | None = None
    steps_per_epoch: int | None = None

    @field_validator("batch_size", "steps_per_epoch", mode="before")
    @classmethod
    def _check_rows_and_steps(cls, value: object) -> object:
        return at_least_one(value)

    @field_validator("shuffle", "seed", mode="before")
    @classmethod
    def _from_numpy(cls, value: Json) -> Json:
        return value.item() if hasattr(value, "item") else value

    @model_validator(mode="after")
    def _check_a_length(self) -> LoopOptions:
        if self.epochs is None and self.steps is None:
            raise ValueError("epochs and steps are both None: give one of them")
        return self
