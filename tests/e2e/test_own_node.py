"""A component of another package between Trainer and Evaluator, by configuration alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from command_line import ROOT, Result, run_pipeline

pytestmark = pytest.mark.slow(60)

ROWS = 60
# The example's own text, in a package that only PYTHONPATH knows.
SOURCE = (ROOT / "examples" / "taxi" / "nodes.py").read_text(encoding="utf-8")
OTHER = '''
from outside.counting import RowCounter


def other(context):
    """A function that makes the node."""
    return RowCounter(examples=context.output("ArrowExampleGen.examples"), **context.parameters)
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """Runs the pipeline with two nodes of the package, and counts its runs."""
    folder = tmp_path_factory.mktemp("own_node")
    (folder / "packages" / "outside").mkdir(parents=True)
    (folder / "packages" / "outside" / "__init__.py").write_text("")
    (folder / "packages" / "outside" / "counting.py").write_text(SOURCE)
    (folder / "packages" / "outside" / "other.py").write_text(OTHER)
    lines = [f"{i % 17}.5,{'ab'[i % 2]},{i % 2}" for i in range(ROWS)]
    (folder / "rows.csv").write_text("\n".join(["size,kind,bought", *lines, ""]))
    config = {
        "name": "own-node",
        "data": {"path": "rows.csv"},
        "features": {
            "groups": [{"name": "size", "columns": ["size"], "scale": "z_score"}],
            "label": {"column": "bought", "kind": "binary"},
        },
        "training": {"global_batch_size": 20, "epochs": 1},
        "evaluation": {"metrics": ["auc"], "require_better_than_constant": False},
        "nodes": [
            {
                "class": "outside.counting.RowCounter",
                "after": ["Transform", "Trainer"],
                "before": "Evaluator",
                "parameters": {"at_least": 10},
            },
            {"class": "outside.other.other", "name": "raw-rows", "before": "Transform"},
        ],
        "output": {"folder": "out"},
    }
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    def run(*arguments: str) -> Result:
        path = f"{folder / 'packages'}:{ROOT}"
        file = folder / "pipeline.yaml"
        return run_pipeline("run", "--config", file, *arguments, environment={"PYTHONPATH": path})

    return folder, run


@pytest.fixture(scope="module")
def first(run) -> Result:
    return run[1]()


def results(folder: Path) -> dict[str, str]:
    summary = json.loads((folder / "out" / "summary.json").read_text())
    return {node["name"]: node["result"] for node in summary["nodes"]}


def test_it_runs_in_its_place_and_is_shown(run, first: Result):
    folder, _ = run
    assert first.code in (0, 3), first.output  # the model's own quality is not the matter
    found = results(folder)
    names = list(found)
    assert names.index("Trainer") < names.index("RowCounter") < names.index("Evaluator")
    assert names.index("raw-rows") < names.index("Transform")
    assert set(found.values()) == {"done"}
    (value,) = (folder / "out" / "artifacts" / "RowCounter" / "rows").glob("*/value")
    assert value.read_text() == str(ROWS)
    (progress,) = first.lines("RowCounter: done in ")
    assert progress.startswith(f"[{names.index('RowCounter') + 1:>2}/{len(names)}]")
    assert first.lines("RowCounter/rows/"), "the summary has no row of it"


def test_only_the_node_whose_code_changed_runs_again(run, first: Result):
    folder, run_again = run
    file = folder / "packages" / "outside" / "other.py"
    file.write_text(file.read_text() + "CHANGED = 1\n")
    again = run_again()
    found = results(folder)
    assert found.pop("raw-rows") == "done", again.output
    assert found.pop("LatestBlessedModel") == "done"  # TFX's resolver is never cached
    assert set(found.values()) == {"cached"}


def test_what_it_raises_ends_the_run_before_the_next_node(run, first: Result):
    _, run_again = run
    failed = run_again("--set=nodes.0.parameters.at_least=1000")
    assert failed.code == 1
    assert "60 rows, and at_least is 1000" in failed.output
    assert failed.lines("RowCounter failed after")
    assert not failed.lines("Evaluator: ")
