"""One benchmark for real, as little of it as shows that it runs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import _report, step_time
from benchmarks._measure import Contender, rounds_of_processes, seconds_per_run
from benchmarks._models import MODELS


def test_quick_measures_and_keeps_nothing(monkeypatch, capsys):
    page = _report.PAGE.read_text()
    kept = {path: path.read_text() for path in _report.PROGRAMS.glob("results/*/*.json")}
    monkeypatch.setattr("sys.argv", ["step_time", "--quick", "--only", "ours,full,alone"])
    step_time.main()
    row = next(line for line in capsys.readouterr().out.splitlines() if "small MLP" in line)
    assert row.split()[:7] == ["step_time", "small", "MLP,", "K", "=", "8", "full"]
    assert _report.PAGE.read_text() == page
    assert kept == {path: path.read_text() for path in _report.PROGRAMS.glob("results/*/*.json")}


def test_rounds_of_all_processes_are_kept():
    times = rounds_of_processes(2, dict, full=[1.0, 2.0], alone=[3.0])
    assert times == {"full": [1.0, 2.0] * 2, "alone": [3.0] * 2}


def test_contenders_that_do_other_work_are_no_race():
    small = MODELS["small"]
    model, contender = step_time.ours(small, 2)
    idle = (small.model(), Contender(lambda steps: None))
    with pytest.raises(SystemExit, match=r"idle moved the weights 100\.0% differently from ours"):
        step_time.check_same_work(small, {"ours": (model, contender), "idle": idle})


def test_turns_alternate_and_counts_keep_to_multiples():
    log: list[tuple[str, int]] = []

    def contender(name: str, multiple: int) -> Contender:
        def run(times: int) -> None:
            log.append((name, times))
            np.linalg.norm(np.ones(10_000))  # takes longer than the clock's tick

        return Contender(run, multiple)

    found = seconds_per_run(
        {"a": contender("a", 10), "b": contender("b", 3)}, rounds=2, seconds_per_turn=0.0
    )
    assert {name: len(values) for name, values in found.items()} == {"a": 2, "b": 2}
    warm_up, turns = log[:4], log[4:]
    assert [name for name, _ in warm_up] == ["a", "a", "b", "b"]
    assert turns == [("a", 10), ("b", 3), ("b", 3), ("a", 10)]
