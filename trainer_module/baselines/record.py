"""Baselines as a file beside the model's run, `baselines.json`; needs nothing of TensorFlow."""

from __future__ import annotations

import json
from typing import NamedTuple

FILE = "baselines.json"
_FORMAT = "tfx-largebatch/baselines"
_VERSION = 1


class Baseline(NamedTuple):
    """One of them.

    Attributes:
        name: constant or linear.
        is_what: In words, with its numbers.
        metrics: Metric to value on the eval rows; None: not defined of them.
    """

    name: str
    is_what: str
    metrics: dict[str, float | None]


class StrongestColumn(NamedTuple):
    """The raw column that alone predicts the label best.

    Attributes:
        column: Its name.
        share: Of the label's variance, explained on held-out training rows.
    """

    column: str
    share: float


class Baselines(NamedTuple):
    """What was computed.

    Attributes:
        fitted_rows: Training rows that they were fitted on.
        eval_rows: Rows they are judged on.
        baselines: Each of them.
        left_out: Why one is missing; empty where none is.
        strongest: The column that alone predicts best; None where that was not measured.
    """

    fitted_rows: int
    eval_rows: int
    baselines: tuple[Baseline, ...]
    left_out: str
    strongest: StrongestColumn | None = None

    def to_json(self) -> str:
        """Returns the file's text."""
        values = {"format": _FORMAT, "version": _VERSION, **self._asdict()}
        values["baselines"] = [each._asdict() for each in self.baselines]
        values["strongest"] = self.strongest._asdict() if self.strongest else None
        return json.dumps(values, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Baselines:
        """Returns what a file holds.

        Raises:
            ValueError: It is of another format or version.
        """
        values = json.loads(text)
        if (values.pop("format", None), values.pop("version", None)) != (_FORMAT, _VERSION):
            raise ValueError(
                f"{FILE} is not of format {_FORMAT!r}, version {_VERSION}: run the Trainer again."
            )
        values["baselines"] = tuple(Baseline(**each) for each in values["baselines"])
        strongest = values.pop("strongest", None)
        return cls(**values, strongest=StrongestColumn(**strongest) if strongest else None)
