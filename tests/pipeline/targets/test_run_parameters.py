"""Run-time parameters: declared by the compiler, set in a node's container, as a compile sets them.

The reference is the pipeline compiled with `--set` of the same value: its nodes have the same
execution properties, bit for bit.
"""

from __future__ import annotations

import json
import re

import pytest
from compiled_taxi import BUCKETS, compiled, cut_to, executor_of, spec_of, tasks_of
from google.protobuf import json_format
from kfp import components
from kfp.pipeline_spec import pipeline_spec_pb2
from parquet_examples import read_rows

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.targets.compiled_spec import CompiledSpec
from pipeline.targets.entry_point import _Invocation
from pipeline.targets.executor_input import DRIVER, INVOCATION
from pipeline.targets.long_values import expand
from pipeline.targets.run_parameters import values_of
from pipeline.targets.submit import _parameters as submitted

NODE = (
    "nodes=[{class: examples.taxi.nodes.RowCounter, after: [Transform], parameters: {at_least: 5}}]"
)
FIELDS = (
    "data.path",
    "training.epochs",
    "training.global_batch_size",
    "training.model.dropout",
    "training.optimizer.learning_rate",
    "nodes.0.parameters.at_least",
)


def with_parameters(target, *overrides, fields=FIELDS):
    return compiled(target, f".parameters=[{', '.join(fields)}]", NODE, *overrides)


@pytest.fixture(scope="module")
def texts():
    """The taxi pipeline with parameters, compiled for each target."""
    return {target: with_parameters(target) for target in BUCKETS}


@pytest.fixture
def file(texts, tmp_path):
    path = tmp_path / "taxi.yaml"
    path.write_text(texts["kubeflow"])
    return path


def container_of(spec, name):
    return executor_of(spec, name).get("container")


def taking(spec, parameter):
    """The nodes that take a parameter."""
    wanted = {"componentInputParameter": parameter}
    return {
        name
        for name, task in tasks_of(spec).items()
        if wanted in task.get("inputs", {}).get("parameters", {}).values()
    }


def node_inputs(spec, name, **given):
    """The arguments of a node's container, as the platform fills them."""
    defaults = {
        key: each["defaultValue"]
        for key, each in spec["root"].get("inputDefinitions", {}).get("parameters", {}).items()
    }
    values = {}
    for key, source in tasks_of(spec)[name].get("inputs", {}).get("parameters", {}).items():
        parameter = source.get("componentInputParameter")
        constant = source.get("runtimeValue", {}).get("constant")
        values[key] = given.get(parameter, defaults.get(parameter)) if parameter else constant
    return {"inputs": {"parameterValues": values}}


def properties(spec, name, **given):
    """The execution properties that TFX gets in the container of a node."""
    container = container_of(spec, name)
    arguments = list(container["args"])
    arguments[arguments.index(INVOCATION) + 1] = json.dumps(node_inputs(spec, name, **given))
    return _Invocation.read(arguments).executor_input["inputs"]["parameterValues"]


def test_kfps_own_parsers_take_parameters_with_types_and_defaults(texts):
    component = components.load_component_from_text(texts["kubeflow"])
    inputs = component.component_spec.inputs
    assert inputs["training_epochs"].type == "Integer"
    assert inputs["training_epochs"].default == 10
    assert inputs["training_epochs"].optional
    assert inputs["data_path"].type == "String"
    assert inputs["data_path"].default == "s3://bucket/data/data.csv"
    for text in texts.values():
        parsed = json_format.ParseDict(spec_of(text), pipeline_spec_pb2.PipelineSpec())
        declared = parsed.root.input_definitions.parameters
        assert set(declared) == {field.replace(".", "_") for field in FIELDS}
        assert declared["training_epochs"].description == "training.epochs of the YAML"


def test_the_nodes_that_depend_on_a_parameter_take_it_and_no_others(texts):
    """Another node stays in the platform's cache when the value changes."""
    for text in texts.values():
        spec = spec_of(text)
        assert taking(spec, "training_epochs") == {"Trainer"}
        assert taking(spec, "data_path") == {"ArrowExampleGen"}
        assert taking(spec, "nodes_0_parameters_at_least") == {"RowCounter"}
    rates = "tuning={search: {optimizer.learning_rate: {values: [0.1, 0.01]}}}"
    tuned = spec_of(with_parameters("vertex", rates))
    assert taking(tuned, "training_epochs") == {"Trainer", "Tuner"}


@pytest.mark.parametrize("target", BUCKETS)
@pytest.mark.parametrize(
    "given",
    [
        {
            "training.epochs": 3.0,
            "training.global_batch_size": 128,
            "training.optimizer.learning_rate": 1,
            "data.path": "DATA/2026/part-*.csv",
            "nodes.0.parameters.at_least": 7,
        },
        {"training.epochs": None, "data.path": "DATA/data.csv"},
    ],
    ids=["all", "defaults"],
)
def test_a_value_gives_the_properties_of_a_compile_with_it(texts, target, given):
    given = {
        field: value.replace("DATA", f"{BUCKETS[target]}/data") if isinstance(value, str) else value
        for field, value in given.items()
    }
    spec = spec_of(texts[target])
    named = {field.replace(".", "_"): value for field, value in given.items()}
    overrides = [
        f"{field.replace('data.path', f'cluster.{target}.data_path')}={json.dumps(value)}"
        for field, value in given.items()
        if value is not None
    ]
    reference = spec_of(compiled(target, NODE, *overrides))
    for name in tasks_of(spec):
        if container_of(spec, name):
            expected = node_inputs(reference, name)["inputs"]["parameterValues"]
            found = properties(spec, name, **named)
            texts = {k: expand(v) if isinstance(v, str) else v for k, v in expected.items()}
            assert found == texts, name


def test_a_wrong_value_ends_the_node_with_field_value_and_fix(texts):
    for node, given, message in (
        ("Trainer", {"training_epochs": 0}, r"epochs=0: use a whole number of at least 1"),
        ("Trainer", {"training_epochs": 2.0**60}, r"epochs=1.*at most 9007199254740992"),
        ("Trainer", {"training_model_dropout": "NaN"}, r"dropout='NaN': not a NUMBER_DOUBLE"),
        ("ArrowExampleGen", {"data_path": "a.csv"}, r"data\.path='a\.csv': a path of the machine"),
        ("ArrowExampleGen", {"data_path": "s3://b/{VERSION}/a"}, r"add \{SPAN\} or a date"),
    ):
        with pytest.raises(ConfigError, match=message):
            properties(spec_of(texts["kubeflow"]), node, **given)


def test_what_cannot_be_a_parameter_is_refused_with_the_reason():
    for field, message in (
        ("training.epoch", r"training\.epoch: a run .*did you mean .training\.epochs"),
        ("training.optimizer", r"a section or a list\. Name a field"),
        ("cluster.kubeflow.retries", r"retries: a run cannot set it; use one of data\.path, "),
    ):
        with pytest.raises(ConfigError, match=r"cluster\.kubeflow\.parameters: .*" + message):
            with_parameters("kubeflow", fields=[field])
    fields = ["training.epochs", "training.epochs", "training.clip_norm", "training.seed"]
    with pytest.raises(ConfigError) as caught:
        with_parameters("kubeflow", f"training.seed={2**53 + 1}", fields=fields)
    twice, no_value, large = str(caught.value).splitlines()
    assert "named training_epochs, as training.epochs is" in twice
    assert "training.clip_norm: no value in the YAML" in no_value
    assert "its value 9007199254740993 is above 9007199254740992" in large


def test_a_path_needs_the_span_that_the_window_asks_for(tmp_path):
    days = ".data_path=s3://bucket/day={YYYY}-{MM}-{DD}/*.csv"
    path = tmp_path / "taxi.yaml"
    path.write_text(with_parameters("kubeflow", "data.spans=3", days, fields=["data.path"]))
    compiled_days = CompiledSpec.read(path)
    assert values_of(compiled_days, {"data.path": "s3://bucket/{YYYY}-{MM}-{DD}/*.csv"})
    with pytest.raises(ConfigError, match=r"data\.spans is above 1"):
        values_of(compiled_days, {"data.path": "s3://bucket/plain.csv"})
    held_out = ".eval_path=s3://bucket/data/eval.csv"
    with pytest.raises(ConfigError, match=r"data\.path: with data\.eval_path no run"):
        with_parameters("kubeflow", held_out, fields=["data.path"])


def test_the_name_of_the_field_and_of_the_parameter_both_work(file):
    spec = CompiledSpec.read(file)
    assert submitted(spec, ["training.epochs=3"]) == {"training_epochs": 3}
    assert submitted(spec, ["training_epochs=3", "training.model.dropout=0.5"]) == {
        "training_epochs": 3,
        "training_model_dropout": 0.5,
    }


def test_submit_and_replay_refuse_a_wrong_value_before_anything_runs(file, capsys):
    for given, message in (
        ("training.epochs=abc", r"--parameter training_epochs=.abc.: not a NUMBER_INTEGER.* as 3"),
        ("training.steps=3", r"training\.steps: the pipeline has no parameter.*training_epochs"),
    ):
        for command in (["submit"], ["replay", "--map", "s3://bucket/data=."]):
            assert main([*command, "--spec", str(file), "--parameter", given]) == 2
            assert re.search(message, capsys.readouterr().err), command


@pytest.mark.pipelines
def test_a_replay_reads_the_folder_that_the_parameter_names(write, tmp_path, monkeypatch, capsys):
    """On Vertex, where ExampleGen's driver looks at the files first."""
    config = write()
    for name, city in (("one", "Oslo"), ("two", "Quito")):
        (tmp_path / name).mkdir()
        rows = "".join(f"{i}.5,{i},{city},{i % 2}\n" for i in range(40))
        (tmp_path / name / "rows.csv").write_text(f"amount,age,city,bought\n{rows}")
    given = [
        "image=registry.example/x:1",
        "pipeline_root=gs://bucket/root",
        "data_path=gs://bucket/one/rows.csv",
        "parameters=[data.path]",
    ]
    spec = tmp_path / "small.json"
    code = main(
        ["compile", "--target", "vertex", "--config", str(config), "--output", str(spec)]
        + [f"--set=cluster.vertex.{each}" for each in given]
    )
    assert code == 0
    spec.write_text(cut_to(spec.read_text(), "ArrowExampleGen"))
    container = container_of(spec_of(spec.read_text()), "ArrowExampleGen")
    driver = container["lifecycle"]["preCacheCheck"]
    assert driver["args"][-1] == DRIVER
    root = tmp_path / "root"
    options = ["--map", f"gs://bucket={tmp_path}", "--root", str(root)]
    given = ["--parameter", "data.path=gs://bucket/two/rows.csv"]
    code = main(["replay", "--spec", str(spec), *options, *given])
    logs = "".join(path.read_text() for path in root.glob("small/*/ArrowExampleGen/log.txt"))
    assert code == 0, logs
    rows = str(read_rows(root.glob("small/*/ArrowExampleGen/examples/Split-*/*")))
    assert rows.count("Quito") == 40
    assert "Oslo" not in rows
    # The driver's output, from which Vertex takes the properties for its cache.
    assert f"'input_base': '{tmp_path}/two'" in logs.partition("Calculated fingerprint")[0]
