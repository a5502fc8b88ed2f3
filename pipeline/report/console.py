"""How a run is displayed: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pipeline.report.progress import Caution, Change, NodeState, RunState, duration
from trainer_module.common.progress import EvaluationEnded, TrainingStep, TrialEnded, TrialFailed

_MARKS = {
    "waiting": ("·", "dim"),
    "done": ("✓", "green"),
    "cached": ("✓", "cyan"),
    "failed": ("✗", "bold red"),
    "interrupted": ("■", "yellow"),
}

_PLAIN_PROGRESS_SECONDS = 5.0


class View(Protocol):
    """A context manager that shows a RunState while it is active."""

    def __enter__(self) -> View:
        """Start to show the state."""
        ...

    def __exit__(self, *_: object) -> None:
        """Show the last state and stop."""
        ...


def view(state: RunState, console: Console, *, plain: bool) -> View:
    """Return the view for the console: live on a terminal; lines in a pipe or with `plain`."""
    if plain or not console.is_terminal:
        return PlainView(state, console)
    return LiveView(state, console)


def waiting(text: str, console: Console) -> Live:
    """Return a spinner with a text that disappears at the end; without a terminal it shows nothing.

    In contrast to `Console.status` it does not redirect sys.stdout and sys.stderr, which go to the
    log file.
    """
    return Live(
        Spinner("dots", text),
        console=console,
        transient=True,
        refresh_per_second=8,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def caution(node: str, sentence: str) -> Text:
    """Return a warning line with a highlighted prefix."""
    return Text.assemble((f"Warning of {node}", "bold yellow"), f": {sentence}.")


class PlainView:
    """A view that prints a line when a node trains, evaluates or ends: for pipes and log files."""

    def __init__(self, state: RunState, console: Console):
        """Subscribe to the changes of a state."""
        self._state = state
        self._console = console
        self._last_progress = 0.0
        state.on_change = self._changed

    def __enter__(self) -> PlainView:
        """Return the view; nothing is shown yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unsubscribe from the state."""
        self._state.on_change = lambda node, change: None

    def _changed(self, node: NodeState, change: Change) -> None:
        width = len(str(len(self._state.nodes)))
        number = f"[{self._state.nodes.index(node) + 1:>{width}}/{len(self._state.nodes)}]"
        if change == "finish":
            text = f"{number} {node.name}: {node.status} in {duration(node.seconds)}"
            extra = node.text if node.status == "done" else ""
            self._print(f"{text} ({extra})" if extra else text)
        elif isinstance(change, TrainingStep):
            if time.monotonic() - self._last_progress >= _PLAIN_PROGRESS_SECONDS:
                self._last_progress = time.monotonic()
                self._print(f"{number} {node.name}: {node.detail}")
        elif isinstance(change, EvaluationEnded | TrialEnded | TrialFailed):
            self._print(f"{number} {node.name}: {node.detail}")
        elif isinstance(change, Caution):
            self._console.print(caution(node.name, change.sentence), soft_wrap=True)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """A table with one line per node, redrawn in place, with a spinner at the running node."""

    def __init__(self, state: RunState, console: Console):
        """Create the table without drawing it."""
        self._state = state
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> LiveView:
        """Draw the table, 8 times a second from now on; warnings are printed above it."""
        self._state.on_change = self._changed
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop redrawing and leave the table on the screen."""
        self._live.stop()
        self._state.on_change = lambda node, change: None

    def _changed(self, node: NodeState, change: Change) -> None:
        if isinstance(change, Caution):
            self._live.console.print(caution(node.name, change.sentence), soft_wrap=True)

    def _render(self) -> Group:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="fold")
        for node in self._state.nodes:
            if node.status == "running":
                mark, style = self._spinner, "bold"
            else:
                symbol, style = _MARKS[node.status]
                mark = Text(symbol, style=style)
            table.add_row(
                mark,
                Text(node.name, style=style if node.status in ("waiting", "running") else ""),
                Text("" if node.status == "waiting" else duration(node.seconds)),
                Text(node.text, style="dim"),
            )
        return Group(table)
