"""Progress records of trainer, tuner and components, for programs to read.

`logger.info(text, extra=attached(record))` attaches a record to a line of absl's log, and
`progress_of(log_record)` returns it. To add a kind of record, add a class here. Between processes a
record is a line of text: `ProgressLines` writes it and `parse_line` reads it.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import IO, NamedTuple

from trainer_module.common.tensors import Json

_LOG_SECONDS = 1.0
"""Least time between two records of one `RowCounter`."""

_ATTRIBUTE = "progress"
_LINE = "progress: "


class TrialNumber(NamedTuple):
    """The number of a training in a search."""

    number: int  # from 1
    of: int | None  # None if there is no limit


@dataclass(frozen=True)
class Progress:
    """Base class of all records."""


@dataclass(frozen=True)
class RowsCounted(Progress):
    """A node has read its rows."""

    node: str
    rows: int


@dataclass(frozen=True)
class RowsProcessed(Progress):
    """A running node has processed this many rows since its previous record."""

    rows: int


@dataclass(frozen=True)
class MemoryProbe(Progress):
    """A measurement of the memory of micro-batches with this number of rows has started."""

    rows: int


@dataclass(frozen=True)
class TrainingStep(Progress):
    """Progress of a training."""

    step: int
    total_steps: int | None  # None if unknown
    epoch: int  # from 1
    epochs: int | None  # None if unknown
    loss: float  # mean loss of the last call of the graph
    # Rate since the previous record; None for the first one, which traces the graph
    examples_per_second: float | None = None
    eta_seconds: float | None = None  # time until the last step; None if unknown
    trial: TrialNumber | None = None  # None outside of a search


@dataclass(frozen=True)
class EvaluationEnded(Progress):
    """The evaluation of an epoch, with the metrics of the eval split; NaN if undefined."""

    epoch: int
    metrics: Mapping[str, float]
    trial: TrialNumber | None = None


@dataclass(frozen=True)
class TrainingEnded(Progress):
    """The end of a training."""

    stopped: str
    steps: int
    skipped: Mapping[str, int]  # number of skipped windows by reason
    trial: TrialNumber | None = None  # None outside of a search
    advice: str = ""  # what to change for the next training; empty if nothing is known
    # The last gradient noise scale in rows; None if it was not measured
    noise_scale: float | None = None
    # Mean number of rows of the last global batches; None if no step was taken
    global_batch: float | None = None


@dataclass(frozen=True)
class TrialEnded(Progress):
    """The score of a trial of a search."""

    trial: TrialNumber
    objective: str
    values: Mapping[str, Json]
    score: float
    best: float
    best_trial: int
    metrics: Mapping[str, float]  # all metrics of this trial's last evaluation


@dataclass(frozen=True)
class TrialFailed(Progress):
    """A trial of a search failed; the search continues."""

    trial: TrialNumber
    values: Mapping[str, Json]
    error: str


def metric_text(value: float) -> str:
    """Return a metric as text for people; NaN means that the rows do not define it."""
    return "undefined" if math.isnan(value) else f"{value:.4f}"


def attached(record: Progress) -> dict[str, Progress]:
    """Return the `extra` argument that attaches a record to a log line."""
    return {_ATTRIBUTE: record}


def progress_of(line: logging.LogRecord) -> Progress | None:
    """Return the record that is attached to a log line, if there is one."""
    found = getattr(line, _ATTRIBUTE, None)
    return found if isinstance(found, Progress) else None


class RowCounter:
    """Counts the rows of a running node and logs `RowsProcessed` once per `LOG_SECONDS` at most.

    An attribute of a Beam function. The progress of a run sees the records of the functions that
    run in its process, as with Beam's in-memory engine; other workers only log them.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._logged = time.monotonic()

    def add(self, rows: int) -> None:
        """Add the rows of a batch."""
        self._rows += rows
        now = time.monotonic()
        if now - self._logged >= _LOG_SECONDS and self._rows:
            record = RowsProcessed(self._rows)
            logging.getLogger("absl").info("%d rows more", record.rows, extra=attached(record))
            self._rows, self._logged = 0, now


class ProgressLines(logging.StreamHandler):
    """Write each progress record as a line for `parse_line`; ignore other log lines."""

    def __init__(self, stream: IO[str]) -> None:
        """Create the handler for a stream."""
        super().__init__(stream)
        self.addFilter(lambda line: progress_of(line) is not None)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        progress = progress_of(record)
        line = {"kind": type(progress).__name__, "text": record.getMessage()}
        return _LINE + json.dumps({**line, "fields": asdict(progress) if progress else {}})


def parse_line(line: str) -> tuple[str, Progress] | None:
    """Return text and record of a line that `ProgressLines` wrote; None for any other line."""
    if not line.startswith(_LINE):
        return None
    found = json.loads(line.removeprefix(_LINE))
    kind = next(each for each in Progress.__subclasses__() if each.__name__ == found["kind"])
    values = found["fields"]
    if values.get("trial") is not None:
        values["trial"] = TrialNumber(*values["trial"])
    return found["text"], kind(**{field.name: values[field.name] for field in fields(kind)})
