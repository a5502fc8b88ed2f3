"""What is happening in a run: the state of its nodes, kept up to date from log records.

TFX has no progress interface; its runner says what it does through absl's logger, and so do our
trainer and components, which attach a record (`extra={"progress": {...}}`). `ProgressHandler`
reads both; the views in `pipeline.report.console` show the state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["waiting", "running", "done", "cached", "failed", "interrupted"]


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
    on_change: Callable[[NodeState, str], None] = field(default=lambda node, event: None)

    @classmethod
    def of(cls, names: Iterable[str]) -> RunState:
        """All nodes waiting."""
        return cls([NodeState(name) for name in names])

    def node(self, name: str) -> NodeState | None:
        return next((node for node in self.nodes if node.name == name), None)

    @property
    def running(self) -> NodeState | None:
        return next((node for node in self.nodes if node.status == "running"), None)

    def start(self, name: str) -> None:
        if node := self.node(name):
            node.status, node.started = "running", time.monotonic()
            self.on_change(node, "start")

    def cached(self) -> None:
        if node := self.running:
            node.detail = "cached"

    def finish(self, name: str) -> None:
        if node := self.node(name):
            node.ended = time.monotonic()
            node.status = "cached" if node.detail == "cached" else "done"
            self.on_change(node, "finish")

    def stop(self, status: Literal["failed", "interrupted"]) -> NodeState | None:
        """Marks the running node, if any, and returns it."""
        node = self.running
        if node:
            node.ended, node.status = time.monotonic(), status
            self.on_change(node, "finish")
        return node

    def set_rows(self, per_split: dict[str, int]) -> None:
        """Rows that each node reads; only StatisticsGen, the second node, counts them."""
        everything = sum(per_split.values())
        for node in self.nodes:
            if node.name.endswith("ExampleGen") or node.name in ("StatisticsGen", "Transform"):
                node.rows = everything
            elif node.name == "Evaluator":
                node.rows = per_split.get("eval")

    def report(self, record: dict[str, Any]) -> None:
        """Takes a progress record of the running node."""
        node = self.running
        if node is None:
            return
        event = record.get("event")
        if event == "rows":
            node.rows = record["rows"]
        elif event == "memory_probe":
            node.detail = f"measuring the memory of micro-batches of {record['rows']:,} rows"
        elif event == "train":
            node.detail = _training_text(record)
        elif event == "trial":
            node.detail = _trial_text(record)
        elif "trial" in record:
            return  # an epoch of a trial: its end is what counts
        elif event == "eval":
            metrics = " ".join(f"{name} {value:.4f}" for name, value in record["metrics"].items())
            node.detail = f"epoch {record['epoch']}: eval {metrics}"
        elif event == "fit_end":
            skipped = sum(record.get("skipped", {}).values())
            node.detail = f"{record['steps']:,} steps, stopped by {record['stopped']}" + (
                f", {skipped} steps skipped" if skipped else ""
            )
        self.on_change(node, event or "progress")


def _training_text(record: dict[str, Any]) -> str:
    parts = [f"step {record['step']:,}/{record['total_steps']:,}", f"loss {record['loss']:.4f}"]
    if "trial" in record:
        parts.insert(0, _trial(record))
    if record.get("examples_per_second"):
        parts.append(f"{record['examples_per_second']:,.0f} examples/s")
    if record.get("eta_seconds") is not None:
        parts.append(f"{duration(record['eta_seconds'])} left")
    return ", ".join(parts)


def _trial_text(record: dict[str, Any]) -> str:
    if "failed" in record:
        return f"{_trial(record)} failed"
    return (
        f"{_trial(record)}: {record['objective']} {record['score']:.4f}, "
        f"best {record['best']:.4f} of trial {record['best_trial']}"
    )


def _trial(record: dict[str, Any]) -> str:
    of = f"/{record['trials']}" if record["trials"] else ""
    return f"trial {record['trial']}{of}"


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

    def __init__(self, state: RunState, *, row_counts: Callable[[], dict[str, int]]):
        """Watches a run.

        Args:
            state: what to keep up to date.
            row_counts: rows per split, called once StatisticsGen has counted them.
        """
        super().__init__(level=logging.INFO)
        self._state = state
        self._row_counts = row_counts

    def emit(self, record: logging.LogRecord) -> None:
        progress = getattr(record, "progress", None)
        if progress is not None:
            self._state.report(progress)
        elif record.msg == "Component %s is running.":
            self._state.start(str(_first(record.args)))
        elif record.msg == "Component %s is finished.":
            name = str(_first(record.args))
            if name == "StatisticsGen":
                self._state.set_rows(self._row_counts())
            self._state.finish(name)
        elif record.msg == "A cached execution %d is used.":
            self._state.cached()


def _first(args: Any) -> Any:
    return args[0] if isinstance(args, tuple) and args else args
