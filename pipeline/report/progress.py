"""What is happening in a run: the state of its nodes, kept up to date from log records.

Our trainer and components attach a record (`trainer_module.common.progress`) to lines of absl's
log; what TFX's runner writes there, `tfx_log` understands. `ProgressHandler` reads both; the views
in `pipeline.report.console` show the state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from pipeline.graph.node_names import NodeName
from pipeline.graph.table import NODES
from pipeline.report.tfx_log import NodeEnds, NodeIsCached, NodeStarts, event_of
from trainer_module.common.progress import (
    EvaluationEnded,
    MemoryProbe,
    Progress,
    RowsCounted,
    TrainingEnded,
    TrainingStep,
    TrialEnded,
    TrialFailed,
    TrialNumber,
    metric_text,
    progress_of,
)

Status = Literal["waiting", "running", "done", "cached", "failed", "interrupted"]


@dataclass(frozen=True)
class Caution:
    """What a node took without complaint and a person should know."""

    sentence: str


Change = Progress | Caution | Literal["start", "finish"]


@dataclass
class NodeState:
    """One node of the graph."""

    name: str
    status: Status = "waiting"
    started: float = 0.0
    ended: float = 0.0
    detail: str = ""
    rows: int | None = None

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        if self.status == "waiting":
            return 0.0
        return (self.ended or time.monotonic()) - self.started

    @property
    def text(self) -> str:
        """Rows, throughput and what the node itself reports."""
        parts = []
        if self.rows is not None:
            parts.append(f"{self.rows:,} rows")
            if self.status == "done" and self.seconds > 0:
                parts.append(f"{self.rows / self.seconds:,.0f} rows/s")
        return ", ".join([*parts, self.detail] if self.detail else parts)


@dataclass
class RunState:
    """All nodes of a run, in the order in which they run."""

    nodes: list[NodeState]
    on_change: Callable[[NodeState, Change], None] = field(default=lambda node, change: None)

    @classmethod
    def of(cls, names: Iterable[str]) -> RunState:
        """All nodes waiting."""
        return cls([NodeState(name) for name in names])

    def node(self, name: str) -> NodeState | None:
        """Finds a node by its name."""
        return next((node for node in self.nodes if node.name == name), None)

    @property
    def running(self) -> NodeState | None:
        """The node that runs, if any."""
        return next((node for node in self.nodes if node.status == "running"), None)

    def start(self, name: str) -> None:
        """Marks a node as running."""
        if node := self.node(name):
            node.status, node.started = "running", time.monotonic()
            self.on_change(node, "start")

    def cached(self) -> None:
        """Remembers that the running node takes what an earlier run made."""
        if node := self.running:
            node.detail = "cached"

    def finish(self, name: str) -> None:
        """Marks a node as done, or cached."""
        if node := self.node(name):
            node.ended = time.monotonic()
            node.status = "cached" if node.detail == "cached" else "done"
            self.on_change(node, "finish")

    def caution(self, name: str, sentence: str) -> None:
        """Passes on what a node that ended should not be believed without."""
        if node := self.node(name):
            self.on_change(node, Caution(sentence))

    def stop(self, status: Literal["failed", "interrupted"]) -> NodeState | None:
        """Marks the running node, if any, and returns it."""
        node = self.running
        if node:
            node.ended, node.status = time.monotonic(), status
            self.on_change(node, "finish")
        return node

    def set_rows(self, per_split: dict[str, int]) -> None:
        """Rows that each node reads; only StatisticsGen, the second node, counts them."""
        rows = {
            "all": sum(per_split.values()),
            "evaluated": per_split.get("test", per_split.get("eval")),
        }
        for node in self.nodes:
            spec = NODES.get(node.name)
            if spec is not None and spec.rows is not None:
                node.rows = rows[spec.rows]

    def report(self, record: Progress) -> None:
        """Takes a progress record of the running node."""
        node = self.running
        if node is None:
            return
        match record:
            case RowsCounted():
                node.rows = record.rows
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
                skipped = sum(record.skipped.values())
                node.detail = f"{record.steps:,} steps, stopped by {record.stopped}" + (
                    f", {skipped} steps skipped" if skipped else ""
                )
            case EvaluationEnded() | TrainingEnded():
                return  # an epoch of a trial: its end is what counts
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
    """`4.2 s`, `1 min 07 s`, `2 h 05 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class ProgressHandler(logging.Handler):
    """Keeps a RunState up to date from the runner's and our own log records."""

    def __init__(
        self,
        state: RunState,
        *,
        row_counts: Callable[[], dict[str, int]],
        cautions: Callable[[], list[str]] = list,
    ):
        """Watches a run.

        Args:
            state: what to keep up to date.
            row_counts: rows per split, called once StatisticsGen has counted them.
            cautions: what Transform took without complaint, called once it has ended.
        """
        super().__init__(level=logging.INFO)
        self._state = state
        self._row_counts = row_counts
        self._cautions = cautions

    def emit(self, record: logging.LogRecord) -> None:
        """Takes what a line of the log carries or says; other lines change nothing."""
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
                    for sentence in self._cautions():
                        self._state.caution(name, sentence)
            case NodeIsCached():
                self._state.cached()
