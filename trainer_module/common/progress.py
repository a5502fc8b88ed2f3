"""Progress records of trainer, tuner and components, for programs to read.

`logger.info(text, extra=attached(record))` attaches a record to a line of absl's log, and
`progress_of(log_record)` returns it. To add a kind, add a class here. Between processes a record is
a line of text: `ProgressLines` writes it and `decoded` reads it.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import IO, Literal, NamedTuple

from trainer_module.common.json_values import Json

_ATTRIBUTE = "progress"
_LINE = "progress: "


class TrialNumber(NamedTuple):
    """Which training of a search.

    Attributes:
        number: From 1.
        of: How many there are; None where there is no limit.
    """

    number: int
    of: int | None


@dataclass(frozen=True)
class Progress:
    """What every record is."""


@dataclass(frozen=True)
class RowsCounted(Progress):
    """A node has read its rows."""

    node: str
    rows: int


@dataclass(frozen=True)
class MemoryProbe(Progress):
    """The memory of micro-batches of so many rows is being measured."""

    rows: int


@dataclass(frozen=True)
class MicroBatchFound(Progress):
    """The micro-batch size that `auto` stands for: fields of `memory.MicroBatchSize`."""

    rows: int
    bytes: int
    budget: int
    next_rows: int | None
    next_bytes: int | None
    source: Literal["measured", "cache", "record"]


@dataclass(frozen=True)
class TrainingStep(Progress):
    """Progress of a training.

    Attributes:
        step: Optimizer steps taken.
        total_steps: Of how many; None where that is not known.
        epoch: The epoch, from 1.
        epochs: Of how many; None where that is not known.
        loss: Mean of the last loop.
        examples_per_second: Since the record before; None for the first, which traces the graph.
        eta_seconds: Until the last step; None where that is not known.
        trial: Of a search; None where there is one training.
    """

    step: int
    total_steps: int | None
    epoch: int
    epochs: int | None
    loss: float
    examples_per_second: float | None = None
    eta_seconds: float | None = None
    trial: TrialNumber | None = None


@dataclass(frozen=True)
class EvaluationEnded(Progress):
    """An epoch's evaluation, with the metrics of the eval split; NaN where undefined."""

    epoch: int
    metrics: Mapping[str, float]
    trial: TrialNumber | None = None


@dataclass(frozen=True)
class TrainingEnded(Progress):
    """Training has ended.

    Attributes:
        stopped: By what.
        steps: Optimizer steps taken.
        skipped: Windows that were left out, by reason.
        trial: Of a search; None where there is one training.
    """

    stopped: str
    steps: int
    skipped: Mapping[str, int]
    trial: TrialNumber | None = None


@dataclass(frozen=True)
class TrialEnded(Progress):
    """A trial of a search has a score.

    Attributes:
        trial: Which.
        objective: What the score is.
        values: The settings tried, by path.
        score: This trial's.
        best: The best so far.
        best_trial: The number of the trial that has it.
        metrics: All of this trial's last evaluation.
    """

    trial: TrialNumber
    objective: str
    values: Mapping[str, Json]
    score: float
    best: float
    best_trial: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class TrialFailed(Progress):
    """A trial of a search failed; the search continues."""

    trial: TrialNumber
    values: Mapping[str, Json]
    error: str


def metric_text(value: float) -> str:
    """Returns a metric as a person reads it; NaN is what the rows do not define."""
    return "undefined" if math.isnan(value) else f"{value:.4f}"


def attached(record: Progress) -> dict[str, Progress]:
    """Returns what a logger takes as `extra`."""
    return {_ATTRIBUTE: record}


def progress_of(line: logging.LogRecord) -> Progress | None:
    """Returns the record on a line of a log, if it carries one."""
    found = getattr(line, _ATTRIBUTE, None)
    return found if isinstance(found, Progress) else None


class ProgressLines(logging.StreamHandler):
    """Writes each progress record as a line that `decoded` reads; other lines of the log not."""

    def __init__(self, stream: IO[str]) -> None:
        """Takes where to write."""
        super().__init__(stream)
        self.addFilter(lambda line: progress_of(line) is not None)

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        progress = progress_of(record)
        told = {"kind": type(progress).__name__, "text": record.getMessage()}
        return _LINE + json.dumps({**told, "fields": asdict(progress) if progress else {}})


def decoded(line: str) -> tuple[str, Progress] | None:
    """Returns the text and the record of a line that `ProgressLines` wrote; None of another."""
    if not line.startswith(_LINE):
        return None
    told = json.loads(line.removeprefix(_LINE))
    kind = next(each for each in Progress.__subclasses__() if each.__name__ == told["kind"])
    values = told["fields"]
    if values.get("trial") is not None:
        values["trial"] = TrialNumber(*values["trial"])
    return told["text"], kind(**{field.name: values[field.name] for field in fields(kind)})
