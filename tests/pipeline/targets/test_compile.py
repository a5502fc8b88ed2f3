"""A configuration -> what each target takes: golden files, and what is corrected for it.

The golden files are of one stack; `make golden` writes those of the stack that is installed.
"""

from __future__ import annotations

import json
import os
import random
import re

import pytest
from compiled_taxi import (
    BUCKETS,
    FILES,
    TAXI,
    compiled,
    documents_of,
    executor_of,
    pods_of,
    settings,
    spec_of,
    tasks_of,
    taxi_at_target,
)
from google.cloud import aiplatform_v1
from google.protobuf import json_format
from kfp import components
from kfp.pipeline_spec import pipeline_spec_pb2

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.graph.user_nodes import _CODE
from pipeline.targets.compile import compile_pipeline
from pipeline.targets.long_values import _LONGEST_ARGUMENT, expand

ACCOUNT = "runs@my-project.iam.gserviceaccount.com"
both_targets = pytest.mark.parametrize("target", BUCKETS)


def comparable(text):
    """Without what every commit, or another stack, changes: the rest is the same on both."""
    text = re.sub(r'(code\\*": \\*")[0-9a-f]{16}', r"\1<fingerprint>", text)
    text = re.sub(r"tfx-\d+\.\d+\.\d+", "tfx-<version>", text)
    return re.sub(r'("tfx_(?:py_)?version": ")[\d-]+', r"\1<version>", text)


@both_targets
def test_the_compiled_taxi_pipeline_is_the_golden_one(target):
    text = comparable(compiled(target, ".resources.Trainer.cpu=4"))
    golden = FILES[target]
    if os.environ.get("WRITE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), "run `make golden` and read what has changed"


def test_kfps_own_parsers_take_the_file():
    text = compiled("kubeflow")
    spec = spec_of(text)
    assert components.load_component_from_text(text).name == "chicago-taxi"
    parsed = json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    assert (parsed.schema_version, parsed.default_pipeline_root) == ("2.1.0", "s3://bucket/root")
    assert len(documents_of(text)) == 1, "no settings of pods were given"


@both_targets
def test_explain_adds_a_node_after_the_evaluator_and_a_signature_to_the_export(target):
    spec = spec_of(compiled(target, "explain={rows: 70}"))
    node = tasks_of(spec)["InputGradients"]
    assert {"ArrowExampleGen", "Evaluator", "Trainer"} <= set(node["dependentTasks"])
    assert node["inputs"]["parameters"]["rows"]["runtimeValue"]["constant"] == 70
    handed = tasks_of(spec)["Trainer"]["inputs"]["parameters"]["custom_config"]
    assert json.loads(handed["runtimeValue"]["constant"])["input_gradients"] is True


@both_targets
def test_resources_reach_every_node_by_its_name(target):
    kind = {"kubeflow": "nvidia.com/gpu", "vertex": "NVIDIA_TESLA_T4"}[target]
    text = compiled(
        target,
        ".resources.default.cpu=1",
        f".resources.Trainer={{cpu: 4, memory_gib: 16, accelerator: {kind}}}",
        ".resources.ArrowExampleGen.memory_gib=2",
        ".retries=2",
    )
    spec = spec_of(text)
    found = {name: executor_of(spec, name)["container"]["resources"] for name in RESOURCES}
    accelerator = found["Trainer"].pop("accelerator")
    assert (accelerator["type"], accelerator["count"]) == (kind, "1")
    for name, expected in RESOURCES.items():
        assert found[name] == pytest.approx(expected, abs=1e-6)
    assert tasks_of(spec)["Trainer"]["retryPolicy"] == {"maxRetryCount": 2}


RESOURCES = {
    "Transform": {"cpuLimit": 1.0},
    "ArrowExampleGen": {"memoryLimit": 2 * 2**30 / 1e9},
    "Trainer": {"cpuLimit": 4.0, "memoryLimit": 16 * 2**30 / 1e9},
}


def test_every_node_on_kubeflow_gets_the_environment_secrets_and_labels():
    text = compiled(
        "kubeflow",
        ".environment={AWS_ENDPOINT_URL: 'http://minio:9000'}",
        ".secrets={minio: {accesskey: AWS_ACCESS_KEY_ID}}",
        ".labels={team: taxi}",
        ".resources.Trainer.timeout_minutes=90",
    )
    nodes, pods = spec_of(text)["deploymentSpec"]["executors"], pods_of(text)
    assert nodes.keys() == pods.keys()
    key = {"secretKey": "accesskey", "envVar": "AWS_ACCESS_KEY_ID"}
    assert pods["Trainer_executor"].pop("activeDeadlineSeconds") == "5400"
    for node, executor in nodes.items():
        variables = executor["container"]["env"]
        assert variables == [{"name": "AWS_ENDPOINT_URL", "value": "http://minio:9000"}]
        assert pods[node] == {
            "secretAsEnv": [{"secretName": "minio", "keyToEnv": [key]}],
            "podMetadata": {"labels": {"team": "taxi"}},
        }


@both_targets
def test_checkpoints_are_saved_by_time_and_a_gpu_is_required(target):
    kind = {"kubeflow": "nvidia.com/gpu", "vertex": "NVIDIA_L4"}[target]
    for override, minutes, require_gpu in (
        ("training.checkpoint_every_minutes=null", None, None),
        (f".resources.Trainer={{accelerator: {kind}}}", 5.0, True),
    ):
        training = taxi_at_target(target, override)[0].training
        assert (training.checkpoint_every_minutes, training.require_gpu) == (minutes, require_gpu)


def custom_job(text):
    """The Trainer's CustomJobSpec, as Google's own proto reads it, and its pools' machines."""
    job = executor_of(spec_of(text), "Trainer")["customJob"]["customJob"]["jobSpec"]
    spec = aiplatform_v1.CustomJobSpec()
    json_format.ParseDict(job, aiplatform_v1.CustomJobSpec.pb(spec))
    return spec, [pool.replica_count for pool in spec.worker_pool_specs]


def test_several_workers_are_pools_of_a_custom_job():
    text = compiled(
        "vertex",
        "training.workers=3",
        ".machine_type=g2-standard-8",
        ".resources.Trainer={accelerator: NVIDIA_L4, accelerator_count: 2, timeout_minutes: 90}",
        ".labels={team: taxi}",
        f".service_account={ACCOUNT}",
    )
    spec, counts = custom_job(text)
    assert counts == [1, 2]
    for pool in spec.worker_pool_specs:
        machine = pool.machine_spec
        assert (machine.machine_type, machine.accelerator_count) == ("g2-standard-8", 2)
        assert machine.accelerator_type == aiplatform_v1.AcceleratorType.NVIDIA_L4
        assert pool.container_spec.command[-1] == "pipeline.targets.entry_point"
    assert spec.scheduling.timeout.total_seconds() == 5400
    # Its machines get the image one after the other, and wait for each other.
    assert re.search(r"start_timeout_seconds\W+900", text)
    job = json.loads(text)
    assert job["labels"]["team"] == "taxi"
    assert job["serviceAccount"] == spec.service_account == ACCOUNT
    servers = compiled("vertex", "training.workers=2", "training.strategy=parameter_server")
    assert custom_job(servers)[1] == [1, 2, 1]


def test_machines_of_vertex_make_the_trainer_a_custom_job():
    text = compiled("vertex", ".spot=true")
    read = aiplatform_v1.PipelineJob.pb(aiplatform_v1.PipelineJob())
    job = {**json.loads(text), "pipelineSpec": {}}
    json_format.ParseDict(job, read, ignore_unknown_fields=False)
    spec, _ = custom_job(text)
    assert spec.scheduling.strategy == aiplatform_v1.Scheduling.Strategy.SPOT
    (pool,) = spec.worker_pool_specs
    assert pool.replica_count == 1
    assert "container" in executor_of(spec_of(text), "Transform")


def test_dataflow_runs_the_same_image_in_the_same_project():
    text = compiled(
        "vertex",
        ".project=my-project",
        ".region=europe-west4",
        f".service_account={ACCOUNT}",
        ".beam={engine: dataflow, options: [--max_num_workers=8, --machine_type=n1-highmem-4]}",
    )
    assert {
        "--runner=DataflowRunner",
        "--project=my-project",
        "--region=europe-west4",
        "--temp_location=gs://bucket/root/beam-temp",
        "--sdk_container_image=registry.example/tfx-largebatch:1.0",
        "--max_num_workers=8",
        "--machine_type=n1-highmem-4",
        f"--service_account_email={ACCOUNT}",
    } <= set(executor_of(spec_of(text), "Transform")["container"]["args"])


def test_the_command_writes_the_file_and_proposes_a_replay(tmp_path, capsys):
    output = tmp_path / "taxi.yaml"
    given = [f"--set={each}" for each in settings("kubeflow")]
    arguments = ["--config", str(TAXI), "--output", str(output), *given]
    assert main(["compile", "--target", "kubeflow", *arguments]) == 0
    assert f"replay --spec {output}" in capsys.readouterr().out
    assert output.read_text() == compiled("kubeflow")


def test_vertex_keeps_tfxs_driver_but_for_a_window_which_it_refuses():
    for spans, has_driver in ((1, True), (2, False)):
        path = ".data_path=gs://bucket/data/{SPAN}/rows.csv"
        spec = spec_of(compiled("vertex", path, f"data.spans={spans}"))
        assert ("lifecycle" in executor_of(spec, "ArrowExampleGen")["container"]) is has_driver
        options = tasks_of(spec)["ArrowExampleGen"]["cachingOptions"]
        assert options.get("enableCache", False) is has_driver


COUNTER = (
    "nodes=[{class: examples.taxi.nodes.RowCounter, after: [Transform, Trainer], "
    "before: Evaluator, parameters: {at_least: 5}}]"
)


@both_targets
def test_a_node_of_the_user_is_in_its_place_and_no_other_node_changes(target):
    number = "nodes.0.parameters.at_least"
    text = compiled(target, COUNTER, ".resources.RowCounter.cpu=2", f".parameters=[{number}]")
    spec = spec_of(text)
    name = number.replace(".", "_")
    assert spec["root"]["inputDefinitions"]["parameters"][name]["defaultValue"] == 5
    tasks = tasks_of(spec)
    assert [n for n, task in tasks.items() if name in str(task.get("inputs"))] == ["RowCounter"]
    counter = tasks.pop("RowCounter")
    assert {"Transform", "Trainer"} <= set(counter["dependentTasks"])
    source = counter["inputs"]["artifacts"]["examples"]["taskOutputArtifact"]
    assert source["producerTask"] == "Transform"
    code = counter["inputs"]["parameters"][_CODE]["runtimeValue"]["constant"]
    assert len(code) == 16, "platforms have it in the key of their caches"
    assert counter["cachingOptions"] == {"enableCache": True}
    assert executor_of(spec, "RowCounter")["container"]["resources"] == {"cpuLimit": 2.0}
    tasks["Evaluator"]["dependentTasks"].remove("RowCounter")
    assert tasks == tasks_of(spec_of(compiled(target)))


def wide(folder, target, groups):
    """A pipeline of Parquet data with groups of columns."""
    bucket = BUCKETS[target]
    values = {
        "name": "wide",
        "data": {"source": "parquet", "path": f"{bucket}/data/data.parquet"},
        "features": {
            "label": {"column": "label", "kind": "binary"},
            "groups": [
                {"name": f"group{n}", "columns": columns, "scale": "z_score"}
                for n, columns in enumerate(groups)
            ],
        },
        "training": {"global_batch_size": 16, "epochs": 1},
        "evaluation": {"thresholds": {"auc": {"lower_bound": 0.0}}},
        "output": {"folder": "output"},
        "cluster": {target: {"image": "registry.example/x:1", "pipeline_root": f"{bucket}/root"}},
    }
    path = folder / "wide.yaml"
    path.write_text(json.dumps(values))  # JSON is YAML, and is read in a tenth of the time
    return load_config(path, [])


def test_many_columns_fit_the_arguments_of_a_process(tmp_path):
    target = "kubeflow"
    names = [f"sensor_{n:05d}" for n in range(20_000)]
    for groups in ([names], [[name] for name in names[:700]]):
        spec = spec_of(compile_pipeline(wide(tmp_path, target, groups), target))
        task = tasks_of(spec)["Transform"]
        assert len(json.dumps(task)) < _LONGEST_ARGUMENT
        packed = task["inputs"]["parameters"]["custom_config"]["runtimeValue"]["constant"]
        features = json.loads(expand(packed))["features"]
        assert [group["columns"] for group in features["groups"]] == groups
    # Names without a pattern compress to half.
    draw = random.Random(0)
    columns = [f"c{draw.getrandbits(64):016x}" for _ in range(20_000)]
    with pytest.raises(ConfigError, match=r"Transform: its settings have \d+ KiB .*custom_config"):
        compile_pipeline(wide(tmp_path, target, [columns]), target)
