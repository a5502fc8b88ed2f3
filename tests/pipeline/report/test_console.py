"""What a run prints: in a pipe, into streams."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from pipeline.report.console import Consoles, ProgressLines
from pipeline.report.progress import RunState
from trainer_module.common.progress import RowsProcessed, TrainingStep

CONTROL = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")


def shown(console: Console) -> str:
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    return CONTROL.sub("", text.replace("\r", "\n"))


def test_lines_in_a_pipe_come_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and rows alike, of all nodes together."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    state, console = RunState.of(["Transform", "Trainer"]), Console(file=io.StringIO(), width=40)
    with ProgressLines(state, console):
        state.start("Transform")
        for _ in range(11):
            now[0] += 1.0
            state.report(RowsProcessed(1000))
        state.finish("Transform")
        state.start("Trainer")
        now[0] += 4.9
        state.report(TrainingStep(5, 50, 1, 10, 0.25))
        now[0] += 0.1
        state.report(TrainingStep(6, 50, 1, 10, 0.25))
    assert shown(console).splitlines() == [
        "[1/2] Transform: 1,000 rows, 1,000 rows/s",
        "[1/2] Transform: 6,000 rows, 1,000 rows/s",
        "[1/2] Transform: 11,000 rows, 1,000 rows/s",
        "[1/2] Transform: done in 11.0 s",
        "[2/2] Trainer: step 6/50, loss 0.2500",
    ]


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_where_a_run_prints(quiet: bool, as_json: bool) -> None:
    out, err = Console(file=io.StringIO()), Console(file=io.StringIO())
    consoles = Consoles.of(out, err, quiet=quiet, as_json=as_json)
    for console, text in zip(consoles, ("progress", "warning", "verdict"), strict=True):
        console.print(text)
    if not quiet:
        assert shown(err if as_json else out).split() == ["progress", "warning", "verdict"]
        assert shown(out if as_json else err) == ""
    else:
        assert shown(err).split() == ["warning"]
        assert shown(out).split() == ([] if as_json else ["verdict"])
