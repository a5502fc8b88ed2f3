"""Read and write the file `baselines.json` of a training run, without TensorFlow."""

from __future__ import annotations

import json
from typing import NamedTuple

FILE = "baselines.json"
_FORMAT = "tfx-largebatch/baselines"
_VERSION = 2


class Baseline(NamedTuple):
    """The "constant" or "linear" baseline, and its metrics on the eval rows, None if undefined."""

    name: str
    is_what: str
    metrics: dict[str, float | None]


class Baselines(NamedTuple):
    """All baselines of a run, the rows they saw, and the reason why one is missing, or ""."""

    fitted_rows: int
    eval_rows: int
    baselines: tuple[Baseline, ...]
    left_out: str

    def to_json(self) -> str:
        """Return the text of the file."""
        values = {"format": _FORMAT, "version": _VERSION, **self._asdict()}
        values["baselines"] = [each._asdict() for each in self.baselines]
        return json.dumps(values, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Baselines:
        """Return what a text describes; raise ValueError for another format or version."""
        values = json.loads(text)
        if (values.pop("format", None), values.pop("version", None)) != (_FORMAT, _VERSION):
            raise ValueError(
                f"{FILE} is not of format {_FORMAT!r}, version {_VERSION}: run the Trainer again."
            )
        values["baselines"] = tuple(Baseline(**each) for each in values["baselines"])
        return cls(**values)
