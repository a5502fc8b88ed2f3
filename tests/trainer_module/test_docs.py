"""The programs of the pages about the trainer run, and print what the pages show."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import pytest

from trainer_module.common.user_values import import_dotted

DOCS = Path(__file__).resolve().parents[2] / "docs"


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def programs(name: str) -> list[str]:
    """The Python blocks of a page, each short enough to be read at once."""
    found = re.findall(r"```python\n(.*?)```", page(name), flags=re.DOTALL)
    assert all(len(program.splitlines()) <= 35 for program in found)
    return found


def printed(name: str) -> list[str]:
    """What each program of a page prints, "" where the page shows nothing."""
    return re.findall(r"```python\n[^`]*```(?:\n\n```\n([^`]+)```)?", page(name))


def nodes(program):
    """What a program defines, behind a Transform of which nothing runs."""
    from tfx import v1 as tfx

    artifacts = tfx.types.standard_artifacts
    outputs = {
        "transformed_examples": tfx.dsl.Channel(type=artifacts.Examples),
        "transform_graph": tfx.dsl.Channel(type=artifacts.TransformGraph),
    }
    scope = {"transform": types.SimpleNamespace(outputs=outputs)}
    exec(program, scope)
    return scope


def function_and_config(node, name):
    """The function that the node runs, and what is handed to it."""
    properties = node.exec_properties
    function = import_dotted(properties[name], field=name)
    return function, json.loads(properties["custom_config"])


@pytest.mark.slow
def test_the_trainer_node_trains_the_model_of_the_page(fn_args, tmp_path, monkeypatch):
    """AUC: the label is a function of the features, but a tenth of the companies is missing."""
    node, model, _ = programs("trainer-module")
    run_fn, config = function_and_config(nodes(node)["trainer"], "run_fn")
    (tmp_path / "my_model.py").write_text(model)
    monkeypatch.syspath_prepend(str(tmp_path))
    args = fn_args(**config["trainer"])
    result = run_fn(args)
    sys.modules.pop("my_model")
    assert result.steps == 8 * 5  # ceil(600 / 128)
    assert result.metrics["auc"] > 0.9
    assert (Path(args.serving_model_dir) / "saved_model.pb").is_file()


@pytest.mark.slow
def test_the_tuner_node_finds_what_the_trainer_node_trains_with(fn_args, tmp_path):
    """As the page says but for one trial instead of twenty."""
    program = programs("trainer-module")[2]
    found = nodes(program)
    tuner_fn, config = function_and_config(found["tuner"], "tuner_fn")
    assert config["tuner"]["trials"] == 20
    args = fn_args(**config["trainer"])
    args.custom_config["tuner"] = {**config["tuner"], "trials": 1}
    args.working_dir = str(tmp_path / "tuner")
    tuner, fit_kwargs = tuner_fn(args)
    tuner.search(**fit_kwargs)
    best = tuner.get_best_hyperparameters()[0]
    assert set(best.values) == {"optimizer.learning_rate", "model.hidden_units"}
    assert tuner.oracle.get_best_trials()[0].score > 0.5
    assert (
        found["trainer"].inputs["hyperparameters"] is found["tuner"].outputs["best_hyperparameters"]
    )


@pytest.mark.parametrize(
    "name",
    ["training-loop", "training-step", "callbacks", "default-model", "stages", "batch-size"],
)
def test_plain_tensorflow_prints_what_the_page_says(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for program, output in zip(programs(name), printed(name), strict=True):
        exec(program, {"__name__": "__main__"})
        assert capsys.readouterr().out == output
