"""How a run is displayed: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
import time
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
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

_MARKS = {
    "waiting": ("·", "dim"),
    "done": ("✓", "green"),
    "cached": ("✓", "cyan"),
    "failed": ("✗", "bold red"),
    "interrupted": ("■", "yellow"),
}


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
    """Print a text: wrapped between words on a terminal, else without line breaks of ours.

    A path that is wider than the terminal stays whole, so that it can be copied.
    """
    shown = Text(text) if isinstance(text, str) else text
    if console.is_terminal:
        lines = []
        for line in shown.split("\n", allow_blank=True):
            lines += line.divide(_line_breaks(line.plain, console.width))
        for line in lines:
            line.rstrip()
        shown = Text("\n").join(lines)
    console.print(shown, highlight=False, soft_wrap=True)


def _line_breaks(line: str, width: int) -> list[int]:
    """Return where to break a line between words; rich would also break words, such as paths."""
    breaks, column = [], 0
    for word in re.finditer(r"^\s*\S+\s*|\S+\s*", line):
        if column and column + cell_len(word.group().rstrip()) > width:
            breaks.append(word.start())
            column = 0
        column += cell_len(word.group())
    return breaks


def view(state: RunState, console: Console, *, plain: bool) -> PlainView:
    """Return the view for the console: live on a terminal; lines in a pipe or with `plain`."""
    if plain or not console.is_terminal or console.is_dumb_terminal:
        return PlainView(state, console)
    return LiveView(state, console)


def waiting(text: str, console: Console) -> Live:
    """Return a spinner with a text that disappears at the end; without a terminal it shows nothing.

    In contrast to `Console.status` it does not redirect sys.stdout and sys.stderr, which go to the
    log file.
    """
    return Live(Spinner("dots", text), transient=True, **_drawing(console))


def _drawing(console: Console) -> dict:
    return {
        "console": console,
        "refresh_per_second": 8,
        "redirect_stdout": False,
        "redirect_stderr": False,
    }


class PlainView:
    """A view that prints a line when a node trains, evaluates or ends: for pipes and log files."""

    def __init__(self, state: RunState, console: Console):
        """Create the view without showing anything."""
        self._state = state
        self._console = console
        self._last_progress = 0.0

    def __enter__(self) -> PlainView:
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


class LiveView(PlainView):
    """A table with one line per node, redrawn in place, with a spinner at the running node."""

    def __init__(self, state: RunState, console: Console):
        """Create the table without drawing it."""
        super().__init__(state, console)
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(get_renderable=self._render, **_drawing(console))

    def __enter__(self) -> LiveView:
        """Draw the table, 8 times a second from now on; warnings are printed above it."""
        super().__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop redrawing and leave the whole table on the screen."""
        self._live.stop()
        super().__exit__()

    def _changed(self, node: NodeState, change: Change) -> None:
        if isinstance(change, RunWarning):
            super()._changed(node, change)

    def _render(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=1)
        table.add_column(overflow="fold")
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="fold")
        for node in self._state.nodes:
            symbol, style = _MARKS.get(node.status, ("", "bold"))
            mark = self._spinner if node.status == "running" else Text(symbol, style=style)
            name = Text(node.name, style=style if node.status in ("waiting", "running") else "")
            time_text = "" if node.status == "waiting" else duration(node.seconds)
            table.add_row(mark, name, time_text, Text(node.text, style="dim"))
        return table
