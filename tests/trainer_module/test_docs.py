"""The programs of docs/trainer-module.md and of the README run, and print what the page says."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import trainer_module
from trainer_module.common.user_values import import_dotted

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "trainer-module.md").read_text(encoding="utf-8")
LEVELS = PAGE.split("\n## ")[1:]


def programs(level: int) -> list[str]:
    """The Python blocks of a level, each short enough to be read at once."""
    found = re.findall(r"```python\n(.*?)```", LEVELS[level - 1], flags=re.DOTALL)
    assert all(len(program.splitlines()) <= 30 for program in found)
    return found


def printed(level: int) -> list[str]:
    """What the page says that each of the level's programs prints."""
    return re.findall(
        r"```\n([^`]+)```", re.sub(r"```python.*?```", "", LEVELS[level - 1], flags=re.DOTALL)
    )


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
    node, model = programs(1)
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
    (program,) = programs(4)
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


@pytest.mark.parametrize("level", [2, 3, 5, 6])
def test_plain_tensorflow_prints_what_the_page_says(level, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for program, output in zip(programs(level), printed(level), strict=True):
        exec(program, {"__name__": "__main__"})
        assert capsys.readouterr().out == output


def test_the_readme_s_plain_tensorflow_programs_run(monkeypatch, tmp_path):
    readme = Path(trainer_module.__file__).parent / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), flags=re.DOTALL)
    plain = [block for block in blocks if "parameter_server" not in block]  # tests/distributed
    loop, centralised, staged = plain
    features = np.random.default_rng(0).normal(size=(300, 8)).astype("float32")
    labels = features.sum(1, keepdims=True)
    scope = {"dataset": tf.data.Dataset.from_tensor_slices((features, labels))}
    exec(loop, scope)
    assert scope["result"].steps == 6
    monkeypatch.chdir(tmp_path)
    exec(staged, scope)
    assert Path("model.keras").exists()
    keras = scope["keras"]
    scope["model"] = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    exec(centralised, scope)
    loop = trainer_module.TrainingLoop(scope["step"], scope["dataset"].batch(256), epochs=1)
    assert loop.fit().steps == 2
