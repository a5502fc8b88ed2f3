"""The state of a training between two calls of the graph."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from trainer_module.common.json_values import Json
from trainer_module.step.reports import LoopReport


@dataclasses.dataclass(frozen=True)
class LoopState:
    """The state of a training. It is immutable: each change returns a new record.

    Attributes:
        epoch: Number of completed epochs.
        step_in_epoch: Steps taken in the current epoch.
        unevaluated_steps: Steps since the last evaluation.
        epoch_loss: Σ loss · Σ w and Σ w over the windows of the current epoch.
        metrics: Metrics of the last evaluation.
        stopped: Why training ended ("epochs", "steps", "early_stopping"); None while it runs.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    unevaluated_steps: int = 0
    epoch_loss: tuple[float, float] = (0.0, 0.0)
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    stopped: str | None = None

    def replace(self, **changes: object) -> LoopState:
        """Return a copy with changed fields."""
        return dataclasses.replace(self, **changes)

    def after_call(self, report: LoopReport) -> LoopState:
        """Return the state after a call of the graph."""
        return self.replace(
            step_in_epoch=self.step_in_epoch + report.steps,
            unevaluated_steps=self.unevaluated_steps + report.steps,
            epoch_loss=report.loss_sums if report.steps else self.epoch_loss,
        )

    def after_epoch(self) -> LoopState:
        """Return the state at the start of the next epoch."""
        return self.replace(epoch=self.epoch + 1, step_in_epoch=0, epoch_loss=(0.0, 0.0))

    @property
    def epochs_begun(self) -> int:
        """Number of epochs with at least one step."""
        return self.epoch + bool(self.step_in_epoch)

    @property
    def mean_epoch_loss(self) -> float:
        """Mean loss of the current epoch; NaN if its weights sum to 0."""
        total, weights = self.epoch_loss
        return total / weights if weights else math.nan

    def to_json(self) -> dict[str, Json]:
        """Return the fields in the format of a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> LoopState:
        """Return the state from the output of `to_json`."""
        values = {field.name: stored[field.name] for field in dataclasses.fields(cls)}
        return cls(**{**values, "epoch_loss": tuple(values["epoch_loss"])})
