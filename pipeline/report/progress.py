"""The progress of a run: the state of its nodes, updated from log records.

Our trainer and components attach a record (`trainer_module.common.progress`) to lines of absl's
log. TFX has no interface for progress: its runner and its launcher log a format together with the
node's name or the execution's number. `pipeline.report.console` shows the state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from pipeline.graph.node_names import NodeName
from pipeline.graph.nodes import NODES
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

# What each supported TFX release logs.
NODE_STARTS = "Component %s is running."
NODE_ENDS = "Component %s is finished."
CACHED = "A cached execution %d is used."

Status = Literal["waiting", "running", "done", "cached", "failed", "interrupted"]
Change = Progress | RunWarning | Literal["start", "finish"]
"""What has changed; a warning is about the results of a node that has ended."""


@dataclass
class NodeState:
    """The state of one node of the graph.

    Attributes:
        rows: Rows that the node reads; None if unknown.
        processed: Rows that it has processed so far, where it reports them.
    """

    name: str
    status: Status = "waiting"
    started: float = 0.0
    ended: float = 0.0
    detail: str = ""
    rows: int | None = None
    processed: int = 0
    training: TrainingEnded | None = None

    @property
    def seconds(self) -> float:
        """Wall time so far in seconds."""
        if self.status == "waiting":
            return 0.0
        return (self.ended or time.monotonic()) - self.started

    @property
    def text(self) -> str:
        """The rows, the throughput, the time left at that, and the details that it reports."""
        parts = []
        if self.status == "running" and self.processed:
            rate = self.processed / max(self.seconds, 1e-9)
            left = (self.rows or 0) - self.processed
            parts = [f"{self.processed:,}{f' of {self.rows:,}' if left >= 0 else ''} rows"]
            parts.append(f"{rate:,.0f} rows/s")
            if left > 0:
                parts.append(f"~{duration(left / rate)} left")
        elif self.rows is not None:
            parts = [f"{self.rows:,} rows"]
            if self.status == "done" and self.seconds > 0:
                parts.append(f"{self.rows / self.seconds:,.0f} rows/s")
        return ", ".join([*parts, *([self.detail] if self.detail else [])])


@dataclass
class RunState:
    """The states of all nodes of a run, in execution order."""

    nodes: list[NodeState]
    on_change: Callable[[NodeState, Change], None] = field(default=lambda node, change: None)
    warnings: list[RunWarning] = field(default_factory=list)

    @classmethod
    def of(cls, names: Iterable[str]) -> RunState:
        """Return a state in which all nodes are waiting."""
        return cls([NodeState(name) for name in names])

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
            self.on_change(node, warning)

    def stop(self, status: Literal["failed", "interrupted"]) -> NodeState | None:
        """Set the status of the running node, if any, and return the node."""
        node = self.running
        if node:
            node.ended, node.status = time.monotonic(), status
            self.on_change(node, "finish")
        return node

    def set_rows(self, per_split: dict[str, int]) -> None:
        """Set the rows that each node reads; only StatisticsGen, the second node, counts them."""
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
                node.processed += record.rows
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
                metrics = " ".join(f"{k} {metric_text(v)}" for k, v in record.metrics.items())
                node.detail = f"epoch {record.epoch}: eval {metrics}"
            case TrainingEnded(trial=None):
                node.training = record
                skipped = sum(record.skipped.values())
                node.detail = f"{record.steps:,} steps, stopped by {record.stopped}"
                node.detail += f", {skipped} steps skipped" if skipped else ""
                node.detail += f"; {record.advice}" if record.advice else ""
            case EvaluationEnded() | TrainingEnded():
                return  # one epoch of a trial: TrialEnded is shown instead
        self.on_change(node, record)


def _training_text(record: TrainingStep) -> str:
    total = "?" if record.total_steps is None else f"{record.total_steps:,}"
    parts = [_trial(record.trial)] if record.trial else []
    parts += [f"step {record.step:,}/{total}", f"loss {record.loss:.4f}"]
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


def node_event(line: logging.LogRecord) -> tuple[str, str]:
    """Return which of TFX's messages a log record is ("" of another), and the node's name."""
    first = line.args[0] if isinstance(line.args, tuple) and line.args else line.args
    return (line.msg if line.msg in (NODE_STARTS, NODE_ENDS, CACHED) else ""), str(first)


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

        `row_counts` returns the rows per split, after StatisticsGen has counted them; `cautions`
        Transform's warnings, after Transform has ended.
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
        event, name = node_event(record)
        if event == NODE_STARTS:
            self._state.start(name)
        elif event == CACHED and (node := self._state.running):
            node.detail = "cached"
        elif event == NODE_ENDS:
            if name == NodeName.STATISTICS_GEN:
                self._state.set_rows(self._row_counts())
            self._state.finish(name)
            for warning in self._cautions() if name == NodeName.TRANSFORM else ():
                self._state.caution(name, warning)
