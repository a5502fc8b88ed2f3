"""Nodes of the YAML's `nodes:` in the compiled files: order, inputs, cache key, a replay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.graph.user_component import CODE
from pipeline.replay.replay import Replay
from pipeline.targets.compile import compile_pipeline
from pipeline.targets.compiled_spec import CompiledSpec

ROOT = Path(__file__).resolve().parents[3]
TAXI = ROOT / "examples" / "taxi" / "pipeline.yaml"
BUCKETS = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}
COUNTER = (
    "{class: examples.taxi.nodes.RowCounter, after: [Transform, Trainer], before: Evaluator, "
    "parameters: {at_least: 5}}"
)
SOURCE = """
from typing import List

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Integer


@component
def Constant(value: OutputArtifact[Integer], number: Parameter[int] = 1):
    value.value = number


@component
def Named(value: OutputArtifact[Integer], names: Parameter[List[str]]):
    value.value = len(names)
"""


def compiled(target, *overrides):
    bucket = BUCKETS[target]
    settings = {
        "image": "registry.example/tfx-largebatch:1.0",
        "pipeline_root": f"{bucket}/root",
        "data_path": f"{bucket}/data/data.csv",
    }
    given = [f"cluster.{target}.{key}={value}" for key, value in settings.items()]
    return compile_pipeline(load_config(TAXI, [*given, *overrides]), target)


def spec_of(text):
    first = next(iter(yaml.safe_load_all(text)))
    return first.get("pipelineSpec", first)


def constants(task):
    parameters = task["inputs"]["parameters"]
    return {k: v["runtimeValue"]["constant"] for k, v in parameters.items() if "runtimeValue" in v}


@pytest.mark.parametrize("target", BUCKETS)
def test_the_compiled_file_has_the_node_in_its_place(target):
    text = compiled(target, f"nodes=[{COUNTER}]", f"cluster.{target}.resources.RowCounter.cpu=2")
    spec = spec_of(text)
    tasks = spec["root"]["dag"]["tasks"]
    counter = tasks["RowCounter"]
    assert {"Transform", "Trainer"} <= set(counter["dependentTasks"])
    assert "RowCounter" in tasks["Evaluator"]["dependentTasks"]
    source = counter["inputs"]["artifacts"]["examples"]["taskOutputArtifact"]
    assert source["producerTask"] == "Transform"
    assert constants(counter)["at_least"] == 5
    assert len(constants(counter)[CODE]) == 16, "platforms have it in the key of their caches"
    assert counter["cachingOptions"] == {"enableCache": True}
    label = spec["components"]["RowCounter"]["executorLabel"]
    container = spec["deploymentSpec"]["executors"][label]["container"]
    assert container["resources"] == {"cpuLimit": 2.0}
    without = spec_of(compiled(target))["root"]["dag"]["tasks"]
    others = {name: task for name, task in tasks.items() if name != "RowCounter"}
    others["Evaluator"]["dependentTasks"].remove("RowCounter")
    assert others == without, "another node has changed"


def test_its_parameter_may_be_one_of_a_run():
    text = compiled(
        "kubeflow",
        f"nodes=[{COUNTER}]",
        "cluster.kubeflow.parameters=[nodes.0.parameters.at_least]",
    )
    spec = spec_of(text)
    name = "nodes_0_parameters_at_least"
    assert spec["root"]["inputDefinitions"]["parameters"][name]["defaultValue"] == 5
    takes = [n for n, t in spec["root"]["dag"]["tasks"].items() if name in str(t.get("inputs"))]
    assert takes == ["RowCounter"]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of one file, which no image has."""
    (tmp_path / "lonely_nodes.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    yield tmp_path
    sys.modules.pop("lonely_nodes", None)


@pytest.mark.parametrize("target", BUCKETS)
def test_a_class_that_no_image_has_is_refused(target, module):
    with pytest.raises(ConfigError, match=r"nodes\.0\.class=lonely_nodes\.Constant: .*pyproject"):
        compiled(target, "nodes=[{class: lonely_nodes.Constant}]")


@pytest.mark.parametrize("target", BUCKETS)
def test_a_list_that_would_arrive_as_text_is_refused(target, module):
    (module / "pyproject.toml").write_text("")
    row = "{class: lonely_nodes.Named, parameters: {names: [a, b]}}"
    with pytest.raises(ConfigError, match=r"nodes\.0\.parameters\.names: is a list; .*text"):
        compiled(target, f"nodes=[{row}]")


@pytest.mark.slow
@pytest.mark.parametrize("target", BUCKETS)
def test_its_command_runs_as_compiled(target, module, tmp_path):
    """The node alone: the rest of the graph is cut away."""
    (module / "pyproject.toml").write_text("")
    row = "{class: lonely_nodes.Constant, name: seven, parameters: {number: 7}}"
    text = compiled(target, f"nodes=[{row}]")
    documents = list(yaml.safe_load_all(text))
    spec = documents[0].get("pipelineSpec", documents[0])
    tasks = spec["root"]["dag"]["tasks"]
    spec["root"]["dag"]["tasks"] = {"seven": tasks["seven"]}
    file = tmp_path / f"cut.{'yaml' if target == 'kubeflow' else 'json'}"
    file.write_text(yaml.safe_dump_all(documents))
    (node,) = Replay(CompiledSpec.read(file), tmp_path / "root").run()
    (value,) = node.artifacts["value"]["artifacts"]
    assert Path(value["uri"]).read_text() == "7"
