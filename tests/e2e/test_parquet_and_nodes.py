"""A folder of Parquet files, as Spark writes it, and nodes of another package, all by YAML alone.

The folder is below one whose name looks like a pattern.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command_line import ROOT, Result, run_here

pytestmark = pytest.mark.pipelines

# The example's own text, in a package that only the import path knows.
SOURCE = (ROOT / "examples" / "taxi" / "nodes.py").read_text(encoding="utf-8")
OTHER = '''
from outside.counting import RowCounter


def other(context):
    """A function that makes the node."""
    return RowCounter(examples=context.output("ArrowExampleGen.examples"), **context.parameters)
'''
CONFIG = yaml.safe_load("""
name: small
data: {path: sales, source: parquet, eval_path: held}
features:
  groups:
    - {name: numbers, columns: [x, year], scale: z_score}
    - {name: texts, columns: [town], encode: vocabulary}
  label: {column: y, kind: binary}
normalization: {on_failure: warn}
training: {global_batch_size: 20, epochs: 1}
evaluation: {thresholds: {auc: {lower_bound: 0.0}}, require_better_than_constant: false}
nodes:
  - class: outside.counting.RowCounter
    after: [Transform, Trainer]
    before: Evaluator
    parameters: {at_least: 10}
  - {class: outside.other.other, name: raw-rows, before: Transform}
output: {folder: out}
""")


def write_year(folder: Path, year: int, rows: int) -> None:
    random = np.random.default_rng(year)
    x = random.normal(size=rows)
    table = {"x": x, "town": random.choice(["Oslo", "Lima"], rows), "y": (x > 0).astype(int)}
    (folder / f"year={year}").mkdir(parents=True)
    pq.write_table(pa.table(table), folder / f"year={year}" / "part-0.parquet")
    (folder / f"year={year}" / ".part-0.parquet.crc").write_text("torn")
    (folder / "_SUCCESS").touch()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parquet") / "a[1] {x}*"
    for year in (2020, 2021):
        write_year(folder / "sales", year, 60)
    write_year(folder / "held", 2022, 40)
    (folder / "sales" / "_temporary").mkdir()
    (folder / "sales" / "_temporary" / "0.parquet").write_text("torn")
    (folder / "p.yaml").write_text(yaml.safe_dump(CONFIG))
    (folder / "packages" / "outside").mkdir(parents=True)
    for name, text in {"__init__": "", "counting": SOURCE, "other": OTHER}.items():
        (folder / "packages" / "outside" / f"{name}.py").write_text(text)
    return folder


def run(folder: Path, *arguments: str) -> Result:
    """Runs the pipeline into a folder beside it, with the package as a new process finds it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "packages"))
        for name in [name for name in sys.modules if name.startswith("outside")]:
            patch.delitem(sys.modules, name)
        out = folder.with_name("out")
        return run_here("run", folder / "p.yaml", f"--set=output.folder={out}", *arguments)


@pytest.fixture(scope="module")
def quiet(folder: Path) -> Result:
    return run(folder, "--quiet")


def results(folder: Path) -> dict[str, str]:
    summary = json.loads((folder.with_name("out") / "summary.json").read_text())
    return {node["name"]: node["result"] for node in summary["nodes"]}


def test_quiet_prints_what_became_of_the_model(quiet: Result):
    assert quiet.code == 0, quiet.output
    printed = [line for line in quiet.output.splitlines() if not line.startswith("warning: ")]
    assert [line.split()[0].rstrip(":") for line in printed] == ["blessed", "pushed"]


def test_nodes_run_in_their_places(folder: Path, quiet: Result):
    found = results(folder)
    names = list(found)
    assert names.index("Trainer") < names.index("RowCounter") < names.index("Evaluator")
    assert names.index("raw-rows") < names.index("Transform")
    assert set(found.values()) == {"done"}
    (value,) = folder.with_name("out").glob("artifacts/RowCounter/rows/*/value")
    assert value.read_text() == str(60 + 60 + 40)


def test_predict_reads_the_folder(folder: Path, quiet: Result, tmp_path: Path):
    out, output = folder.with_name("out"), tmp_path / "predictions.csv"
    found = {}
    for data in ("held", "held/year=*/*.parquet"):
        source = ["--data", folder / data, "--output", output]
        assert run_here("predict", "--model", out / "serving_model", *source).code == 0
        with output.open(newline="") as stream:
            found[data] = list(csv.DictReader(stream))
    assert found["held"] == found["held/year=*/*.parquet"]
    assert [row["year"] for row in found["held"]] == ["2022"] * 40


def test_an_output_folder_that_looks_like_a_pattern_is_refused(folder: Path):
    result = run_here("run", folder / "p.yaml")
    assert result.code == 2
    assert f"output.folder={folder / 'out'}" in result.output


def test_only_the_node_whose_code_changed_runs_again(folder: Path, quiet: Result):
    (folder / "packages" / "outside" / "other.py").write_text(f"{OTHER}CHANGED = 1\n")
    again = run(folder)
    found = results(folder)
    assert found["raw-rows"] == "done", again.output
    # TFX's resolver is never cached, and it now finds a model to compare with.
    compared = {"LatestBlessedModel", "Evaluator", "Pusher"}
    assert {name for name, how in found.items() if how == "done"} - compared == {"raw-rows"}
    (progress,) = again.lines("RowCounter: cached in ")
    assert progress.startswith(f"[{list(found).index('RowCounter') + 1:>2}/{len(found)}]")
    assert again.lines("RowCounter/rows/"), "the summary has no row of it"


def test_what_a_node_raises_ends_the_run_before_the_next_one(folder: Path, quiet: Result):
    failed = run(folder, "--set=nodes.0.parameters.at_least=1000")
    assert failed.code == 1
    assert "160 rows, and at_least is 1000" in failed.output
    assert failed.lines("RowCounter failed after")
    assert not failed.lines("Evaluator: ")
