"""The progress of a run: the state of its nodes, updated from log records.

Our trainer and components attach a record (`trainer_module.common.progress`) to lines of absl's
log. `tfx_log` parses the lines of TFX's runner. `ProgressHandler` reads both. The views in
`pipeline.report.console` show the state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from pipeline.graph.node_names import NodeName
from pipeline.graph.nodes import NODES
from pipeline.report.tfx_log import NodeEnds, NodeIsCached, NodeStarts, event_of
from shared_core.run_warning import RunWarning
from trainer_module.common.progress import (
    EvaluationEnded,
    MemoryProbe,
    Progress,
    RowsCounted,
    RowsProcessed,
    TrainingEnded,
    TrainingStep,
    TrialEnded,
    TrialFailed,
    TrialNumber,
    metric_text,
    progress_of,
)

_LENGTH_IN_SETTINGS = (NodeName.TUNER, NodeName.TRAINER)
"""Nodes that report the time until their last step; settings, more than rows, decide it."""

_CACHED_SECONDS = 1.0
"""A node that is taken from the cache has ended by then, so no estimate is shown before."""

Status = Literal["waiting", "running", "done", "cached", "failed", "interrupted"]


@dataclass(frozen=True)
class Caution:
    """A problem that a node accepted without an error and that the user should know."""

    sentence: str


Change = Progress | Caution | Literal["start", "finish"]


class Timing(NamedTuple):
    """The wall time in seconds of a node that was computed, and its rows; None if unknown."""

    seconds: float
    rows: int | None


@dataclass
class NodeState:
    """The state of one node of the graph.

    Attributes:
        rows: Rows that the node reads; None if unknown.
        processed: Rows that it has processed so far, where it reports them.
        computed: The latest time that an earlier run computed it; None if unknown.
    """

    name: str
    status: Status = "waiting"
    started: float = 0.0
    ended: float = 0.0
    detail: str = ""
    rows: int | None = None
    processed: int = 0
    computed: Timing | None = None
    training: TrainingEnded | None = None
    _counts: list[tuple[float, int]] = field(default_factory=list)  # first and last (time, rows)

    @property
    def seconds(self) -> float:
        """Wall time so far in seconds."""
        if self.status == "waiting":
            return 0.0
        return (self.ended or time.monotonic()) - self.started

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the running node ends; None if unknown, or if they are over.

        They follow from the time of an earlier run, in proportion to the rows; without one, from
        the rate at which rows are processed now.
        """
        if self.status != "running" or self.name in _LENGTH_IN_SETTINGS:
            return None
        if self.seconds < _CACHED_SECONDS:
            return None
        left = None
        if self.computed is not None:
            more = self.rows / self.computed.rows if self.rows and self.computed.rows else 1.0
            left = self.computed.seconds * more - self.seconds
        elif self.rows and len(self._counts) > 1:
            (start, before), (now, processed) = self._counts[0], self._counts[-1]
            rate = (processed - before) / max(now - start, 1e-9)
            left = (self.rows - processed) / rate - (time.monotonic() - now)
        return left if left is not None and left > 0 else None

    def count(self, rows: int) -> None:
        """Add rows that the node has processed."""
        self.processed += rows
        self._counts = [*self._counts[:1], (time.monotonic(), self.processed)]

    @property
    def text(self) -> str:
        """The rows, the throughput, the details that the node reports, and the time left."""
        parts = []
        if self.status == "running" and self.processed:
            of = f" of {self.rows:,}" if self.rows and self.rows >= self.processed else ""
            parts.append(f"{self.processed:,}{of} rows")
            parts.append(f"{self.processed / max(self.seconds, 1e-9):,.0f} rows/s")
        elif self.rows is not None:
            parts.append(f"{self.rows:,} rows")
            if self.status == "done" and self.seconds > 0:
                parts.append(f"{self.rows / self.seconds:,.0f} rows/s")
        if self.detail:
            parts.append(self.detail)
        if (left := self.seconds_left) is not None:
            parts.append(f"~{_about(left)} left")
        return ", ".join(parts)


@dataclass
class RunState:
    """The states of all nodes of a run, in execution order."""

    nodes: list[NodeState]
    on_change: Callable[[NodeState, Change], None] = field(default=lambda node, change: None)
    warnings: list[RunWarning] = field(default_factory=list)

    @classmethod
    def of(
        cls, names: Iterable[str], computed: Mapping[str, Timing] = MappingProxyType({})
    ) -> RunState:
        """Return a state in which all nodes are waiting.

        Args:
            names: The nodes, in execution order.
            computed: The times of nodes that earlier runs computed, by name.
        """
        return cls([NodeState(name, computed=computed.get(name)) for name in names])

    def node(self, name: str) -> NodeState | None:
        """Return the node with this name, or None."""
        return next((node for node in self.nodes if node.name == name), None)

    @property
    def running(self) -> NodeState | None:
        """The running node, or None."""
        return next((node for node in self.nodes if node.status == "running"), None)

    def start(self, name: str) -> None:
        """Mark a node as running."""
        if node := self.node(name):
            node.status, node.started = "running", time.monotonic()
            self.on_change(node, "start")

    def cached(self) -> None:
        """Record that the running node reuses outputs of an earlier run."""
        if node := self.running:
            node.detail = "cached"

    def finish(self, name: str) -> None:
        """Mark a node as done or cached."""
        if node := self.node(name):
            node.ended = time.monotonic()
            node.status = "cached" if node.detail == "cached" else "done"
            self.on_change(node, "finish")

    def caution(self, name: str, warning: RunWarning) -> None:
        """Report a warning about the results of a node that has ended."""
        self.warnings.append(warning)
        if node := self.node(name):
            self.on_change(node, Caution(str(warning)))

    def stop(self, status: Literal["failed", "interrupted"]) -> NodeState | None:
        """Set the status of the running node, if any, and return the node."""
        node = self.running
        if node:
            node.ended, node.status = time.monotonic(), status
            self.on_change(node, "finish")
        return node

    def set_rows(self, per_split: dict[str, int]) -> None:
        """Set the rows that each node reads; only StatisticsGen, the second node, counts them.

        Args:
            per_split: Number of rows by split.
        """
        rows = {
            "all": sum(per_split.values()),
            "evaluated": per_split.get("test", per_split.get("eval")),
        }
        for node in self.nodes:
            spec = NODES.get(node.name)
            if spec is not None and spec.rows is not None:
                node.rows = rows[spec.rows]

    def report(self, record: Progress) -> None:
        """Update the running node from a progress record."""
        node = self.running
        if node is None:
            return
        match record:
            case RowsCounted():
                node.rows = record.rows
            case RowsProcessed():
                node.count(record.rows)
            case MemoryProbe():
                node.detail = f"measuring the memory of micro-batches of {record.rows:,} rows"
            case TrainingStep():
                node.detail = _training_text(record)
            case TrialEnded():
                node.detail = (
                    f"{_trial(record.trial)}: {record.objective} {record.score:.4f}, "
                    f"best {record.best:.4f} of trial {record.best_trial}"
                )
            case TrialFailed():
                node.detail = f"{_trial(record.trial)} failed"
            case EvaluationEnded(trial=None):
                metrics = " ".join(
                    f"{name} {metric_text(value)}" for name, value in record.metrics.items()
                )
                node.detail = f"epoch {record.epoch}: eval {metrics}"
            case TrainingEnded(trial=None):
                node.training = record
                skipped = sum(record.skipped.values())
                node.detail = f"{record.steps:,} steps, stopped by {record.stopped}" + (
                    f", {skipped} steps skipped" if skipped else ""
                )
                node.detail += f"; {record.advice}" if record.advice else ""
            case EvaluationEnded() | TrainingEnded():
                return  # one epoch of a trial: TrialEnded is shown instead
        self.on_change(node, record)


def _training_text(record: TrainingStep) -> str:
    total = "?" if record.total_steps is None else f"{record.total_steps:,}"
    parts = [f"step {record.step:,}/{total}", f"loss {record.loss:.4f}"]
    if record.trial:
        parts.insert(0, _trial(record.trial))
    if record.examples_per_second:
        parts.append(f"{record.examples_per_second:,.0f} examples/s")
    if record.eta_seconds is not None:
        parts.append(f"{duration(record.eta_seconds)} left")
    return ", ".join(parts)


def _trial(trial: TrialNumber) -> str:
    return f"trial {trial.number}" + (f"/{trial.of}" if trial.of else "")


def duration(seconds: float) -> str:
    """Return a duration in seconds as text: `4.2 s`, `1 min 07 s`, `2 h 05 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _about(seconds: float) -> str:
    """Return an estimated duration without fractions of a second."""
    return duration(seconds) if seconds >= 59.5 else f"{max(1, round(seconds))} s"


class ProgressHandler(logging.Handler):
    """A logging handler that updates a RunState from log records of TFX's runner and ours."""

    def __init__(
        self,
        state: RunState,
        *,
        row_counts: Callable[[], dict[str, int]],
        cautions: Callable[[], list[RunWarning]] = list,
    ):
        """Create a handler for a run.

        Args:
            state: The state to update.
            row_counts: Returns the rows per split; called after StatisticsGen has counted them.
            cautions: Returns the problems that Transform accepted; called after Transform has
                ended.
        """
        super().__init__(level=logging.INFO)
        self._state = state
        self._row_counts = row_counts
        self._cautions = cautions

    def emit(self, record: logging.LogRecord) -> None:
        """Update the state if the log record reports progress; ignore other records."""
        if progress := progress_of(record):
            self._state.report(progress)
            return
        match event_of(record):
            case NodeStarts(name):
                self._state.start(name)
            case NodeEnds(name):
                if name == NodeName.STATISTICS_GEN:
                    self._state.set_rows(self._row_counts())
                self._state.finish(name)
                if name == NodeName.TRANSFORM:
                    for warning in self._cautions():
                        self._state.caution(name, warning)
            case NodeIsCached():
                self._state.cached()
