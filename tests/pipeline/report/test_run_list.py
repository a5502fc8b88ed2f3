"""The list of runs and the difference of two, compared with their records."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console
from run_records import SETTINGS, SUMMARY_OF_A_RUN, failed
from run_records import write as write_run

from pipeline.cli.cli import main
from pipeline.common import exit_codes
from pipeline.report.run_list import changes, metric_pairs, show_difference, show_runs
from pipeline.report.run_record import records_of


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
    for command in (["runs"], ["report"], ["runs", "diff", "a", "--config"]):
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


def test_slices_of_one_text_stay_apart(tmp_path: Path) -> None:
    """Value `b=c` of column `a`, and value `c` of column `a=b`."""
    slices = [
        {"slice": {column: value}, "rows": 9, "weights": None, "metrics": {"auc": auc}}
        for column, value, auc in (("a", "b=c", 0.25), ("a=b", "c", 0.75))
    ]
    for name in ("20260130-100000", "20260131-100000"):
        write_run(tmp_path, name, slices=slices)
    found = metric_pairs(*records_of(tmp_path))
    assert found == [("auc of a=b=c", 0.25, 0.25), ("auc of a=b=c", 0.75, 0.75)]


def test_the_difference_pairs_slices_and_nodes(tmp_path: Path) -> None:
    one = write_run(tmp_path, "20260130-100000")
    slices = [
        {**SUMMARY_OF_A_RUN["slices"][0], "metrics": {"mean_absolute_error": 2.25}},
        {"slice": {"city": "Bonn"}, "rows": 2, "metrics": {"mean_absolute_error": 1.0}},
    ]
    nodes = [{"name": "Trainer", "result": "done", "seconds": 3.0, "rows": 300}]
    other = write_run(tmp_path, "20260131-100000", slices=slices, nodes=nodes)
    shown = console()
    show_difference(one, other, shown)
    found = lines(shown)
    assert ["mean_absolute_error", "2.5000", "2.2500", "-0.2500"] in found
    assert ["mean_absolute_error", "of", "city=Bonn", "1.0000"] in found
    assert ["time", "of", "Trainer", "0.5", "s", "3.0", "s", "+2.5", "s"] in found
    assert found[0] == ["Settings,", "rows", "and", "versions", "are", "the", "same."]
