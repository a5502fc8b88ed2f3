"""`replay --check-serving`: the pushed model of a replay, asked as its server asks it."""

from __future__ import annotations

import json

import pytest
from served_model import write_model

from pipeline.cli.cli import main

pytestmark = pytest.mark.slow

ARTIFACT = {"schemaTitle": "system.Artifact"}
# A Pusher: says where it has put the model.
PUSHES = """
import json, sys
printed = json.loads(sys.argv[1])
(artifact,) = printed["outputs"]["artifacts"]["pushed_model"]["artifacts"]
artifact["metadata"] = {"pushed_destination": sys.argv[2]} if sys.argv[2] else {}
output = {"artifacts": {"pushed_model": {"artifacts": [artifact]}}}
import os
os.makedirs(os.path.dirname(printed["outputs"]["outputFile"]), exist_ok=True)
with open(printed["outputs"]["outputFile"], "w") as stream:
    json.dump(output, stream)
"""


@pytest.fixture
def replay(tmp_path):
    """`replay` of a pipeline whose Pusher puts a model there, as a function of more arguments."""

    def run(pushed, *arguments):
        container = {
            "image": "x:1",
            "command": ["python", "-c", PUSHES],
            "args": ["{{$}}", str(pushed)],
        }
        outputs = {"artifacts": {"pushed_model": {"artifactType": ARTIFACT}}}
        spec = {
            "pipelineInfo": {"name": "small"},
            "root": {"dag": {"tasks": {"Pusher": {"componentRef": {"name": "push"}}}}},
            "components": {"push": {"executorLabel": "push", "outputDefinitions": outputs}},
            "deploymentSpec": {"executors": {"push": {"container": container}}},
        }
        file = tmp_path / "small.yaml"
        file.write_text(json.dumps(spec))
        return main(
            ["replay", "--spec", str(file), "--root", str(tmp_path / "root"), *map(str, arguments)]
        )

    return run


def test_a_replay_whose_model_answers_otherwise_fails(replay, tmp_path, rows, capsys):
    model = write_model(tmp_path / "model", raw_reads_missing=False)
    assert replay(model, "--check-serving", rows) == 1
    printed = capsys.readouterr().out
    assert "Pusher: done" in printed
    assert f"check failed: raw, row 2 of {rows}: outputs is [nan]" in printed


def test_a_replay_that_pushes_nothing_fails_the_check(replay, rows, capsys):
    assert replay("", "--check-serving", rows) == 1
    assert "no node pushed one" in capsys.readouterr().out
    assert replay("") == 0


def test_rows_that_cannot_be_read_are_an_error_before_anything_runs(replay, tmp_path, capsys):
    assert replay("", "--check-serving", tmp_path / "none.csv") == 2
    printed = capsys.readouterr()
    assert "none.csv" in printed.err
    assert "Pusher" not in printed.out
