"""`submit --wait`: show a run on a platform in the same views as a local run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from rich.console import Console

from pipeline.platforms.platform import PlatformError, RunNow, SubmittedRun, TaskNow
from pipeline.report import console as views
from pipeline.report.progress import NodeState, RunState

_TRIES = 10
"""Requests in a row that may fail before waiting ends."""


def wait_for(run: SubmittedRun, names: Iterable[str], console: Console, *, poll: float) -> RunNow:
    """Show the nodes of a run until it ends, with `poll` seconds between two requests.

    Returns:
        The final state of the run.

    Raises:
        PlatformError: The platform no longer answers.
        KeyboardInterrupt: It was interrupted; the run continues.
    """
    state = RunState.of(names)
    failures = 0
    with views.view(state, console, plain=False):
        while True:
            try:
                now = run.now()
                failures = 0
            except PlatformError as error:
                failures += 1
                if not error.is_transient or failures == _TRIES:
                    raise
            else:
                _show(state, now.tasks)
                if now.state != "running":
                    return now
            time.sleep(poll)


def _show(state: RunState, tasks: Mapping[str, TaskNow]) -> None:
    for node in state.nodes:
        task = tasks.get(node.name)
        if task is None or task.status in ("waiting", node.status):
            continue
        if node.status == "waiting":
            node.started = _here(task.started)
            node.status = "running"
            state.on_change(node, "start")
        if task.status != "running":
            _finish(node, task)
            state.on_change(node, "finish")


def _finish(node: NodeState, task: TaskNow) -> None:
    if task.started is not None:
        node.started = _here(task.started)  # for a retried task, of the last attempt
    node.ended = max(node.started, _here(task.ended))
    node.status = task.status


def _here(seconds: float | None) -> float:
    """Return a time of the platform on this process' clock."""
    now = time.monotonic()
    return now if seconds is None else min(now, now - (time.time() - seconds))
