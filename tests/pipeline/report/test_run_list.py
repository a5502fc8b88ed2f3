"""The list of runs, compared with their records."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console
from run_records import SETTINGS, failed
from run_records import write as write_run

from pipeline.cli.cli import main
from pipeline.common import exit_codes
from pipeline.report.run_list import changes, show_runs


def console() -> Console:
    return Console(file=io.StringIO(), width=140, markup=False, emoji=False, highlight=False)


def lines(shown: Console) -> list[list[str]]:
    assert isinstance(shown.file, io.StringIO)
    return [line.split() for line in shown.file.getvalue().splitlines()]


def test_the_list_shows_result_time_metrics_and_what_changed(tmp_path: Path) -> None:
    write_run(tmp_path, "20260130-100000")
    write_run(tmp_path, "20260131-100000", settings={"training": {"epochs": 9}})
    write_run(tmp_path, "20260131-110000", **failed("Trainer", "no memory"))
    shown = console()
    show_runs(tmp_path, shown)
    found = lines(shown)
    assert found[0] == ["run", "result", "time", "mean_absolute_error", "changed"]
    assert found[1] == ["20260130-100000", "blessed", "1", "min", "30", "s", "2.5000"]
    assert found[2][-4:] == ["training.epochs:", "5", "→", "9"]
    assert found[3][:2] == ["20260131-110000", "failed"]
    assert "2.5000" not in found[3]


def test_a_place_that_does_not_exist_is_named_in_one_line(tmp_path: Path, capfd: Any) -> None:
    for command in (["runs"], ["report"]):
        assert main([*command, str(tmp_path / "nothing")]) == exit_codes.WRONG_INPUT
        (line,) = capfd.readouterr().err.strip().splitlines()
        assert f"{tmp_path / 'nothing'}: no such file or folder" in line


def test_settings_are_named_by_their_field_and_lists_by_their_name(tmp_path: Path) -> None:
    groups = [
        {"name": "ages", "columns": ["age"], "scale": "min_max"},
        *SETTINGS["features"]["groups"],
    ]
    one = write_run(tmp_path, "20260130-100000")
    other = write_run(
        tmp_path,
        "20260131-100000",
        settings={
            "features": {**SETTINGS["features"], "groups": groups},
            "training": {"micro_batch_size": 8},
            "output": {"folder": "/third"},
        },
        rows={"train": 480, "eval": 60},
    )
    assert [f"{name}: {old} → {new}" for name, old, new in changes(one, other)] == [
        "training.epochs: 5 → default",
        "features.groups.ages.name: default → ages",
        'features.groups.ages.columns: default → ["age"]',
        "features.groups.ages.scale: default → min_max",
        "training.micro_batch_size: default → 8",
        "rows.train: 240 → 480",
    ]
