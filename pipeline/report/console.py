"""How a run is displayed: a line for each change of a node."""

from __future__ import annotations

import io
import time
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from pipeline.report.progress import Change, NodeState, RunState, duration
from shared_core.run_warning import RunWarning
from trainer_module.common.progress import (
    EvaluationEnded,
    RowsProcessed,
    TrainingStep,
    TrialEnded,
    TrialFailed,
)


class Consoles(NamedTuple):
    """Where a run prints.

    Attributes:
        progress: Progress, tables and the next commands.
        warnings: Warnings and errors.
        verdict: Whether the model is blessed, and where it is.
    """

    progress: Console
    warnings: Console
    verdict: Console

    @classmethod
    def of(cls, out: Console, err: Console, *, quiet: bool, as_json: bool) -> Consoles:
        """Return the consoles of a run.

        `quiet`: only warnings and errors, to `err`, and the verdict. `as_json`: `out` is free for a
        JSON document, which has the verdict.
        """
        if not quiet:
            every = err if as_json else out
            return cls(every, every, every)
        nowhere = Console(file=io.StringIO(), quiet=True)
        return cls(nowhere, err, nowhere if as_json else out)


def print_text(console: Console, text: str | Text) -> None:
    """Print a text without line breaks of ours, so that a path in it can be copied."""
    console.print(text, highlight=False, soft_wrap=True)


class ProgressLines:
    """Prints a line when a node trains, evaluates or ends."""

    def __init__(self, state: RunState, console: Console):
        """Show nothing before the block begins."""
        self._state = state
        self._console = console
        self._last_progress = 0.0

    def __enter__(self) -> ProgressLines:
        """Show the changes of the state from now on."""
        self._state.on_change = self._changed
        return self

    def __exit__(self, *_: object) -> None:
        """Show no more changes."""
        self._state.on_change = lambda node, change: None

    def _changed(self, node: NodeState, change: Change) -> None:
        if isinstance(change, RunWarning):
            start = (f"Warning of {node.name}", "bold yellow")
            print_text(self._console, Text.assemble(start, f": {change}"))
            return
        width = len(str(len(self._state.nodes)))
        number = f"[{self._state.nodes.index(node) + 1:>{width}}/{len(self._state.nodes)}]"
        text = f"{number} {node.name}: {node.text}"
        if change == "finish":
            text = f"{number} {node.name}: {node.status} in {duration(node.seconds)}"
            text += f" ({node.text})" if node.status == "done" and node.text else ""
        elif isinstance(change, TrainingStep | RowsProcessed):
            if time.monotonic() - self._last_progress < 5.0:
                return
            self._last_progress = time.monotonic()
        elif not isinstance(change, EvaluationEnded | TrialEnded | TrialFailed):
            return
        print_text(self._console, text)
