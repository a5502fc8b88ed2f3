"""Nodes of compiled files that are run as they were compiled, each alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from compiled_taxi import ROOT, compiled, cut_to
from parquet_examples import read_rows

from pipeline.cli.cli import main
from pipeline.replay.replay import Replay
from pipeline.targets.compiled_spec import CompiledSpec


def write_span(folder, name, rows):
    (folder / name).mkdir(parents=True)
    lines = ["fare,tips", *(f"{row},1.0" for row in rows)]
    (folder / name / "rows.csv").write_text("\n".join(lines) + "\n")


def fares(split_folder):
    rows = read_rows(Path(split_folder).glob("Split-*/*"))
    return sorted(fare for row in rows for fare in row["fare"])


@pytest.mark.slow(8)
def test_each_run_on_kubeflow_reads_the_latest_days_that_are_there(tmp_path):
    """A replay of ExampleGen alone, of days that came after the file was compiled."""
    path = "data/day={YYYY}-{MM}-{DD}/*.csv"
    spec = tmp_path / "spec.yaml"
    text = compiled("kubeflow", f".data_path=s3://bucket/{path}", "data.spans=2")
    spec.write_text(cut_to(text, "ArrowExampleGen"))
    root, data = tmp_path / "root", tmp_path / "data"
    for day, rows in (("2024-02-28", [1]), ("2024-02-29", [3, 5]), ("2024-03-01", [7])):
        write_span(data, f"day={day}", rows)
    replay = ["replay", "--spec", str(spec), "--root", str(root)]
    assert main([*replay, "--map", f"s3://bucket/data={data}"]) == 0
    lines = (root / "chicago-taxi" / "artifacts.jsonl").read_text().splitlines()
    examples = json.loads(lines[-1])
    assert (fares(examples["uri"]), examples["metadata"]["custom:span"]) == ([3, 5, 7], 19783)


SOURCE = """
from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Integer


@component
def Constant(value: OutputArtifact[Integer], number: Parameter[int] = 1):
    value.value = number
"""


@pytest.mark.slow
def test_the_command_of_a_users_node_runs(tmp_path, monkeypatch):
    (tmp_path / "lonely_nodes.py").write_text(SOURCE)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.delitem(sys.modules, "lonely_nodes", raising=False)
    row = "{class: lonely_nodes.Constant, name: seven, parameters: {number: 7}}"
    text = compiled("vertex", f"nodes=[{row}]")
    file = tmp_path / "cut.yaml"
    file.write_text(cut_to(text, "seven"))
    (node,) = Replay(CompiledSpec.read(file), tmp_path / "root").run()
    (value,) = node.artifacts["value"]["artifacts"]
    assert Path(value["uri"]).read_text() == "7"
