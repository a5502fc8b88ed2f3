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
from pipeline.targets.container_flags import DRIVER, INVOCATION
from pipeline.targets.entry_point import Invocation
from pipeline.targets.long_values import expand_properties
from pipeline.targets.run_time_parameters import NodeParameters, check_values
from pipeline.targets.submit import parameters as submitted

FIELDS = (
    "training.epochs",
    "training.optimizer.learning_rate",
    "data.path",
    "data.test_percent",
    "evaluation.thresholds.auc.lower_bound",
    "evaluation.baselines",
    "features.groups.1.impute",
)


def with_parameters(target, *overrides, fields=FIELDS):
    return compiled(target, f".parameters=[{', '.join(fields)}]", *overrides)


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
    return Invocation.read(arguments).executor_input["inputs"]["parameterValues"]


def test_kfps_own_parsers_take_parameters_with_types_and_defaults(texts):
    component = components.load_component_from_text(texts["kubeflow"])
    inputs = component.component_spec.inputs
    assert inputs["training_epochs"].type == "Integer"
    assert inputs["training_epochs"].default == 10
    assert inputs["training_epochs"].optional
    assert inputs["data_path"].type == "String"
    assert inputs["data_path"].default == "s3://bucket/data/data.csv"
    assert inputs["evaluation_thresholds_auc_lower_bound"].type == "Float"
    assert inputs["evaluation_baselines"].type == "Boolean"
    assert inputs["evaluation_baselines"].default is True
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
        assert taking(spec, "features_groups_1_impute") == {"Transform"}
        assert taking(spec, "evaluation_thresholds_auc_lower_bound") == {"Evaluator"}
        # The Evaluator and the Trainer read the split `test` where there is one.
        assert taking(spec, "data_test_percent") == {"ArrowExampleGen", "Trainer", "Evaluator"}


def test_without_parameters_nothing_is_added():
    spec = spec_of(compiled("kubeflow"))
    assert "inputDefinitions" not in spec["root"]
    assert not any(
        "--run_time_parameters" in container_of(spec, name)["args"] for name in tasks_of(spec)
    )


@pytest.mark.parametrize("target", BUCKETS)
@pytest.mark.parametrize(
    "given",
    [
        {"training.epochs": 3.0},
        {"training.optimizer.learning_rate": 1},
        {"data.path": "DATA/2026/part-*.csv"},
        {"data.test_percent": 20},
        {"evaluation.thresholds.auc.lower_bound": 0.5, "evaluation.baselines": False},
        {"features.groups.1.impute": "median"},
        {"data.path": "DATA/other.csv", "training.epochs": 7, "data.test_percent": 5},
        {"training.epochs": None, "data.path": "DATA/data.csv"},
    ],
    ids=lambda given: ",".join(given),
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
    reference = spec_of(compiled(target, *overrides))
    for name in tasks_of(spec):
        if container_of(spec, name):
            expected = node_inputs(reference, name)["inputs"]["parameterValues"]
            found = properties(spec, name, **named)
            assert json.dumps(found, sort_keys=True) == json.dumps(
                expand_properties(expected), sort_keys=True
            ), name


@pytest.mark.parametrize(
    ("node", "given", "message"),
    [
        ("Trainer", {"training_epochs": 0}, r"epochs=0: use a whole number of at least 1"),
        ("Trainer", {"training_epochs": 2.5}, r"training\.epochs=2\.5: not a NUMBER_INTEGER"),
        ("Trainer", {"training_epochs": 2.0**60}, r"epochs=1.*at most 9007199254740992"),
        ("Trainer", {"training_epochs": "abc"}, r"training\.epochs='abc': not a NUMBER_INTEGER"),
        ("Trainer", {"evaluation_baselines": 1.0}, r"baselines=1\.0: not a BOOLEAN.*default, true"),
        ("Transform", {"features_groups_1_impute": "x"}, r"groups\.1\.impute='x': .*mean"),
        ("ArrowExampleGen", {"data_path": "a.csv"}, r"data\.path='a\.csv': a path of the machine"),
        ("ArrowExampleGen", {"data_path": "s3://b/{VERSION}/a"}, r"add \{SPAN\} or a date"),
        ("ArrowExampleGen", {"data_test_percent": 90}, r"=33 and test_percent=90 leave"),
    ],
)
def test_a_wrong_value_ends_the_node_with_field_value_and_fix(texts, node, given, message):
    with pytest.raises(ConfigError, match=message):
        properties(spec_of(texts["kubeflow"]), node, **given)


def test_a_value_that_changes_other_nodes_is_refused_in_the_container(texts, monkeypatch):
    """What no probe of the compiler found: the nodes that take the parameter see it and end."""
    spec = spec_of(
        with_parameters("kubeflow", "data.test_percent=10", fields=["data.test_percent"])
    )
    arguments = container_of(spec, "ArrowExampleGen")["args"]
    place = arguments.index("--run_time_parameters") + 1
    known = NodeParameters.unpack(arguments[place])
    (parameter,) = known.parameters
    fewer = parameter.model_copy(update={"nodes": ("ArrowExampleGen",)})
    arguments[place] = known.model_copy(update={"parameters": (fewer,)}).pack()
    assert properties(spec, "ArrowExampleGen", data_test_percent=20)
    with pytest.raises(
        ConfigError, match=r"test_percent=0: .*Evaluator, Trainer too.*--set data\."
    ):
        properties(spec, "ArrowExampleGen", data_test_percent=0)


def test_a_node_that_depends_on_two_fields_only_together_takes_both():
    """Without baselines the Trainer reads no split; with them, `test` where there is one."""
    off = "evaluation.baselines=false"
    spec = spec_of(
        with_parameters("kubeflow", off, fields=["data.test_percent", "evaluation.baselines"])
    )
    assert taking(spec, "data_test_percent") == {"ArrowExampleGen", "Trainer", "Evaluator"}
    found = properties(spec, "Trainer", data_test_percent=20, evaluation_baselines=True)
    assert json.loads(found["custom_config"])["baselines"] == "test"


def test_a_replay_maps_the_paths_of_the_configuration_that_nodes_get(tmp_path):
    """The folder of both paths would be another one if only the parameter was mapped."""
    path = tmp_path / "taxi.yaml"
    held_out = "cluster.kubeflow.eval_path=s3://bucket/data/eval.csv"
    path.write_text(with_parameters("kubeflow", held_out, fields=["data.path"]))
    spec = CompiledSpec.read(path).renamed({"s3://bucket": "/here"}).spec
    name = "ArrowExampleGen"
    before = properties(spec, name)
    assert before["input_base"] == "/here/data"
    after = properties(spec, name, data_path="/here/data/new/data.csv")
    assert after == {**before, "input_config": after["input_config"]}
    assert "new/data.csv" in after["input_config"]
    assert "eval.csv" in after["input_config"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["training.epoch"], r"training\.epoch: no such field\. Did you mean training\.epochs"),
        (["training.optimizer"], r"a section or a list\. Name .*training\.optimizer\.name"),
        (["training.clip_norm"], r"training\.clip_norm: no value in the YAML"),
        (["cluster.kubeflow.retries"], r"retries: a run cannot set it: it is what the file is"),
        (["training.workers"], r"workers: a run cannot set it: .*names the machines"),
        (["name"], r"name: the value 'chicago-taxix' changes the compiled pipeline\.displayName"),
        (["metadata.cache"], r"metadata\.cache: the value False changes .*dag\.tasks\."),
        (["metadata.path"], r"no value in the YAML"),
        (["training.epochs", "training.epochs"], r"named training_epochs .*as training\.epochs is"),
        (["training.seed"], r"its value 9007199254740993 is above 9007199254740992"),
    ],
)
def test_what_cannot_be_a_parameter_is_refused_with_the_reason(fields, message):
    seed = [f"training.seed={2**53 + 1}"] if "training.seed" in fields else []
    with pytest.raises(ConfigError, match=r"cluster\.kubeflow\.parameters: " + ".*" + message):
        with_parameters("kubeflow", *seed, fields=fields)


def test_a_path_needs_the_span_that_the_window_asks_for():
    days = ".data_path=s3://bucket/day={YYYY}-{MM}-{DD}/*.csv"
    spec = spec_of(with_parameters("kubeflow", "data.spans=3", days, fields=["data.path"]))
    check_values(spec, {"data_path": "s3://bucket/{YYYY}-{MM}-{DD}/*.csv"})
    with pytest.raises(ConfigError, match=r"data\.spans is 3"):
        check_values(spec, {"data_path": "s3://bucket/plain.csv"})


def test_all_reasons_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        with_parameters("vertex", fields=["training.epoch", "training.clip_norm"])
    assert len(str(caught.value).splitlines()) == 2


def test_the_name_of_the_field_and_of_the_parameter_both_work(file):
    spec = CompiledSpec.read(file)
    assert submitted(spec, ["training.epochs=3"]) == {"training_epochs": 3}
    assert submitted(spec, ["training_epochs=3", "evaluation.baselines=false"]) == {
        "training_epochs": 3,
        "evaluation_baselines": False,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("training.epochs=abc", r"epochs=abc: .*NUMBER_INTEGER.*--parameter training_epochs=3"),
        ("training.epochs=0", r"training\.epochs=0: use a whole number of at least 1"),
        ("training.steps=3", r"training\.steps: the pipeline has no parameter.*training_epochs"),
    ],
)
def test_submit_and_replay_refuse_a_wrong_value_before_anything_runs(file, given, message, capsys):
    for command in ("submit", "replay"):
        places = ["--map", "s3://bucket/data=."] if command == "replay" else []
        code = main([command, "--spec", str(file), *places, "--parameter", given])
        assert code == 2
        assert re.search(message, capsys.readouterr().err), command


@pytest.mark.slow
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
