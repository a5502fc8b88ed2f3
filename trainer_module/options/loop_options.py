"""Options for the length of a training, the reading of its data and the grouping of its steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.common.json_values import Json
from trainer_module.options.batch_sizes import check_batch_sizes
from trainer_module.options.settings import COUNT, RUN_LENGTH, RUNTIME_ONLY, Settings


class RunLength(Settings):
    """Length of a training, and number of steps per call of the graph."""

    epochs: Annotated[int | None, COUNT, RUN_LENGTH] = Field(
        default=None,
        description=(
            "Passes over the training rows. Give epochs or steps; null and no steps: 10 epochs."
        ),
    )
    steps: Annotated[int | None, COUNT, RUN_LENGTH] = Field(
        default=None, description="Optimizer steps. Give epochs or steps."
    )
    steps_per_loop: Annotated[int | Literal["auto"], COUNT, RUNTIME_ONLY] = Field(
        default="auto",
        description=(
            "Optimizer steps per call of the graph; auto: as many as take about 0.5 seconds."
        ),
    )

    @model_validator(mode="after")
    def _check_one_length(self) -> RunLength:
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs={self.epochs} and steps={self.steps}: give one of them")
        return self


class LoopOptions(RunLength):
    """The options of a `TrainingLoop`; see there."""

    batch_size: int | dict[int, int] | None = None
    shuffle: bool | None = None
    seed: int | None = None
    steps_per_epoch: Annotated[int | None, COUNT] = None

    @field_validator("shuffle", "seed", mode="before")
    @classmethod
    def _from_numpy(cls, value: Json) -> Json:
        return value.item() if hasattr(value, "item") else value

    @field_validator("batch_size", mode="before")
    @classmethod
    def _batch_sizes(cls, value: Json) -> Json:
        return None if value is None else check_batch_sizes(value)

    @model_validator(mode="after")
    def _check_passes(self) -> LoopOptions:
        if isinstance(self.batch_size, dict) and self.steps_per_epoch is not None:
            raise ValueError(
                f"steps_per_epoch={self.steps_per_epoch} with a schedule of batch sizes: an epoch "
                "is one pass over the rows then; leave out steps_per_epoch"
            )
        return self

    @model_validator(mode="after")
    def _check_a_length(self) -> LoopOptions:
        if self.epochs is None and self.steps is None:
            raise ValueError("epochs and steps are both None: give one of them")
        return self
