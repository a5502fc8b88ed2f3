"""A configuration -> what each target takes: golden files, what is corrected, what is refused.

The golden files are of one stack; `make golden` writes those of the stack that is installed.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format
from kfp import components
from kfp.pipeline_spec import pipeline_spec_pb2

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.targets.compile import at_target, compile_pipeline

ROOT = Path(__file__).resolve().parents[3]
TAXI = ROOT / "examples" / "taxi" / "pipeline.yaml"
GOLDEN = Path(__file__).with_name("golden")
BUCKETS = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}
SUFFIXES = {"kubeflow": ".yaml", "vertex": ".json"}


def taxi(target, *overrides, without=()):
    """The taxi pipeline with a profile of the target, as of `--set`."""
    bucket = BUCKETS[target]
    settings = {
        f"cluster.{target}.image": "registry.example/tfx-largebatch:1.0",
        f"cluster.{target}.pipeline_root": f"{bucket}/root",
        f"cluster.{target}.data_path": f"{bucket}/data/data.csv",
    }
    given = [f"{k}={v}" for k, v in settings.items() if k.rpartition(".")[2] not in without]
    return load_config(TAXI, [*given, *overrides])


def compiled(target, *overrides):
    return compile_pipeline(taxi(target, *overrides), target)


def spec_of(text):
    first = next(iter(yaml.safe_load_all(text)))
    return first.get("pipelineSpec", first)


def comparable(text):
    """Without what every commit, or another stack, changes: the rest is the same on both."""
    text = re.sub(r'(code\\*": \\*")[0-9a-f]{16}', r"\1<fingerprint>", text)
    text = re.sub(r"tfx-\d+\.\d+\.\d+", "tfx-<version>", text)
    return re.sub(r'("tfx_(?:py_)?version": ")[\d-]+', r"\1<version>", text)


@pytest.mark.parametrize("target", BUCKETS)
def test_the_compiled_taxi_pipeline_is_the_golden_one(target):
    text = comparable(compiled(target, f"cluster.{target}.resources.Trainer.cpu=4"))
    golden = GOLDEN / f"taxi-{target}{SUFFIXES[target]}"
    if os.environ.get("WRITE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), "run `make golden` and read what has changed"


@pytest.mark.parametrize("target", BUCKETS)
def test_the_same_configuration_gives_the_same_bytes(target):
    assert compiled(target) == compiled(target)


def test_kfps_own_parsers_take_the_kubeflow_file():
    text = compiled("kubeflow")
    assert components.load_component_from_text(text).name == "chicago-taxi"
    parsed = json_format.ParseDict(spec_of(text), pipeline_spec_pb2.PipelineSpec())
    assert parsed.schema_version == "2.1.0"
    assert parsed.default_pipeline_root == "s3://bucket/root"


def test_kubeflow_gets_neither_resolvers_nor_drivers():
    spec = spec_of(compiled("kubeflow"))
    executors = spec["deploymentSpec"]["executors"]
    assert {kind for executor in executors.values() for kind in executor} == {"container"}
    assert not any("lifecycle" in executor["container"] for executor in executors.values())
    tasks = spec["root"]["dag"]["tasks"]
    assert "cachingOptions" not in tasks["ArrowExampleGen"]
    assert "cachingOptions" not in tasks["LatestBlessedModel"]
    assert tasks["Transform"]["cachingOptions"] == {"enableCache": True}
    vertex = spec_of(compiled("vertex"))["deploymentSpec"]["executors"]
    assert "resolver" in vertex["LatestBlessedModel-model-resolver_executor"]
    assert "preCacheCheck" in vertex["ArrowExampleGen_executor"]["container"]["lifecycle"]


@pytest.mark.parametrize("target", BUCKETS)
def test_resources_reach_every_node_by_its_name(target):
    kind = {"kubeflow": "nvidia.com/gpu", "vertex": "NVIDIA_TESLA_T4"}[target]
    place = f"cluster.{target}.resources"
    text = compiled(
        target,
        f"{place}.default.cpu=1",
        f"{place}.Trainer={{cpu: 4, memory_gib: 16, accelerator: {kind}}}",
        f"{place}.ArrowExampleGen.memory_gib=2",
        f"cluster.{target}.retries=2",
    )
    spec = spec_of(text)
    found = {
        name.removesuffix("_executor"): executor["container"]["resources"]
        for name, executor in spec["deploymentSpec"]["executors"].items()
        if "container" in executor
    }
    assert found["Transform"] == {"cpuLimit": 1.0}
    assert found["ArrowExampleGen"] == {"memoryLimit": pytest.approx(2 * 2**30 / 1e9, abs=1e-6)}
    trainer = found["Trainer"]
    assert trainer["cpuLimit"] == 4.0
    assert trainer["memoryLimit"] == pytest.approx(16 * 2**30 / 1e9, abs=1e-6)
    assert trainer["accelerator"]["type"] == kind
    assert trainer["accelerator"]["count"] == "1"
    assert spec["root"]["dag"]["tasks"]["Trainer"]["retryPolicy"] == {"maxRetryCount": 2}


def test_every_node_on_kubeflow_gets_the_environment_and_the_secrets():
    spec, kubernetes = yaml.safe_load_all(
        compiled(
            "kubeflow",
            "cluster.kubeflow.environment={AWS_ENDPOINT_URL: 'http://minio:9000'}",
            "cluster.kubeflow.secrets={minio: {accesskey: AWS_ACCESS_KEY_ID}}",
        )
    )
    nodes = spec["deploymentSpec"]["executors"]
    pods = kubernetes["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert nodes.keys() == pods.keys()
    for node in nodes:
        variables = nodes[node]["container"]["env"]
        assert variables == [{"name": "AWS_ENDPOINT_URL", "value": "http://minio:9000"}]
        key = {"secretKey": "accesskey", "envVar": "AWS_ACCESS_KEY_ID"}
        assert pods[node]["secretAsEnv"] == [{"secretName": "minio", "keyToEnv": [key]}]


def test_labels_are_of_pods_on_kubeflow_and_of_the_job_on_vertex():
    documents = list(
        yaml.safe_load_all(compiled("kubeflow", "cluster.kubeflow.labels={team: taxi}"))
    )
    pods = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert pods["Trainer_executor"] == {"podMetadata": {"labels": {"team": "taxi"}}}
    job = json.loads(
        compiled(
            "vertex",
            "cluster.vertex.labels={team: taxi}",
            "cluster.vertex.service_account=runs@my-project.iam.gserviceaccount.com",
        )
    )
    assert job["labels"]["team"] == "taxi"
    assert job["serviceAccount"] == "runs@my-project.iam.gserviceaccount.com"


@pytest.mark.parametrize(
    ("target", "overrides", "message"),
    [
        ("kubeflow", ["cluster.kubeflow.image=registry.example/x"], r"image=.*no tag.*name:1\.0"),
        ("vertex", ["cluster.vertex.pipeline_root=/tmp/x"], r"folder of this machine"),
        ("vertex", ["cluster.vertex.pipeline_root=s3://b/x"], r"Cloud Storage alone; use gs://"),
        (
            "kubeflow",
            ["cluster.kubeflow.data_path=package://tfx/x.csv"],
            r"data.path=package://tfx/x.csv: a file inside a Python package.*kubeflow\.data_path",
        ),
        ("vertex", ["cluster.vertex.data_path=rides.csv"], r"path of this machine, which no pod"),
        ("kubeflow", ["serving.push_folder=/models"], r"serving.push_folder=/models: a path of"),
        (
            "kubeflow",
            ["cluster.kubeflow.data_path=s3://b/{YYYY}/x.csv"],
            r"x\.csv: a date needs .*add \{MM\}, \{DD\}",
        ),
        (
            "kubeflow",
            ["cluster.kubeflow.resources.Trainer.accelerator=NVIDIA_TESLA_T4"],
            r"use nvidia.com/gpu",
        ),
        (
            "vertex",
            ["cluster.vertex.resources.Trainer.accelerator=nvidia.com/gpu"],
            r"use NVIDIA_TESLA_T4",
        ),
        (
            "vertex",
            ["cluster.vertex.resources.Trainr.cpu=1"],
            r"resources\.Trainr: no node has this name; there are ArrowExampleGen,",
        ),
        ("kubeflow", [f"name={'a' * 60}"], r"60 characters; Kubeflow's runs.*use 57 or fewer"),
        (
            "vertex",
            [
                "cluster.vertex.beam={engine: multi_processing, workers: 8}",
                "cluster.vertex.resources.Transform.cpu=4",
            ],
            r"beam.workers=8 exceeds.*Transform gets 4 cores",
        ),
        (
            "kubeflow",
            [
                "cluster.kubeflow.beam={extra_args: [--direct_num_workers=3]}",
                "cluster.kubeflow.resources.default.cpu=2",
            ],
            r"beam.extra_args: --direct_num_workers=3 exceeds.*: ArrowExampleGen gets 2 cores",
        ),
        (
            "vertex",
            ["cluster.vertex.resources.Trainer.accelerator=NVIDIA_T4"],
            r"accelerator=NVIDIA_T4: Vertex names a device by its model; use NVIDIA_TESLA_T4",
        ),
        (
            "vertex",
            ["cluster.vertex.resources.Trainer={accelerator: NVIDIA_L4, accelerator_count: 3}"],
            r"accelerator_count=3: a machine has 1, 2, 4, 8, 16 of NVIDIA_L4",
        ),
        ("vertex", ["training.strategy=multi_worker"], r"multi_worker with one worker: give"),
        ("kubeflow", ["training.strategy=tpu"], r"strategy=tpu, and .*has no accelerator: ask"),
        (
            "vertex",
            ["training.workers=2", "cluster.vertex.resources.Trainer.accelerator=NVIDIA_L4"],
            r"machine_type=n1-standard-8: has no NVIDIA_L4; use g2-standard-8",
        ),
        (
            "vertex",
            ["training.workers=2", "cluster.vertex.resources.Trainer.cpu=4"],
            r"Trainer: cpu and memory_gib are not asked for by.*name cluster\.vertex\.machine_type",
        ),
        (
            "vertex",
            ["cluster.vertex.resources.Transform.timeout_minutes=5"],
            r"timeout_minutes=5: Vertex has no time limit of a node, but of a Trainer on several",
        ),
        ("vertex", ["cluster.vertex.labels.Team=a"], r"labels\.Team=a: no label of Google Cloud"),
        ("kubeflow", ["cluster.kubeflow.labels.team=-a"], r"labels\.team=-a: no label of Kuber"),
        (
            "kubeflow",
            ["cluster.kubeflow.baseline_model=/models/1"],
            r"baseline_model=/models/1: a folder of this machine",
        ),
        (
            "kubeflow",
            ["cluster.kubeflow.data_gib=4", "cluster.kubeflow.resources.default.memory_gib=8"],
            r"data_gib=4.* keeps in the memory of one container.*ArrowExampleGen gets 8: give",
        ),
        (
            "kubeflow",
            ["cluster.kubeflow.pipeline_root=minio://mlpipeline/root"],
            r"no TensorFlow has a file system for minio://; write s3://",
        ),
        (
            "kubeflow",
            ["cluster.kubeflow.beam={engine: multi_processing, workers: 1}"],
            r"engine=multi_processing: TensorFlow in Beam's workers does not know s3://",
        ),
        ("vertex", ["cluster.vertex.network=default"], r"network=default.*projects/NUMBER/global"),
        (
            "kubeflow",
            ["cluster.kubeflow.environment={AWS_SECRET_ACCESS_KEY: x}"],
            r"environment\.AWS_SECRET_ACCESS_KEY: .*cluster\.kubeflow\.secrets",
        ),
        (
            "kubeflow",
            ["cluster.kubeflow.pipeline_root=s3://key:hush@bucket_/x"],
            r"pipeline_root=s3://bucket_/x: bucket_ is no name of a bucket",
        ),
        ("kubeflow", ["cluster.kubeflow.resources.Trainer.cpu=500"], r"cpu=500: .* 384 cores"),
        ("vertex", ["cluster.vertex.data_gib=40"], r"40.*ArrowExampleGen is not said to get more"),
    ],
)
def test_what_the_target_cannot_do_is_refused_with_its_fix(target, overrides, message):
    with pytest.raises(ConfigError, match=message):
        compile_pipeline(taxi(target, *overrides), target)


def test_the_size_of_data_that_are_here_is_seen(tmp_path):
    """A file with a hole of 20 GiB in it takes no room."""
    with (tmp_path / "data.csv").open("wb") as stream:
        stream.truncate(20 * 2**30)
    here = f"data.path={tmp_path / 'data.csv'}"
    with pytest.raises(
        ConfigError, match=r"data\.csv has 20\.0 GiB on this machine, which Beam's own"
    ):
        compiled("kubeflow", here)
    elsewhere = (
        "cluster.kubeflow.beam={engine: portable, job_endpoint: 'jobs:8099', environment: external}"
    )
    google = "cluster.kubeflow.pipeline_root=gs://bucket/root"
    assert "jobs:8099" in compiled("kubeflow", here, elsewhere, google)
    enough = "cluster.kubeflow.resources.ArrowExampleGen.memory_gib=256"
    assert "memoryLimit" in compiled("kubeflow", here, enough)


def test_a_function_that_no_package_holds_is_in_no_image(tmp_path, monkeypatch):
    module = tmp_path / "my_columns.py"
    module.write_text("def derive(inputs):\n    return {}\n")
    monkeypatch.syspath_prepend(tmp_path)
    mine = "features.derive=my_columns.derive"
    with pytest.raises(ConfigError, match=r"my_columns.py is part of no package.*--with") as caught:
        compiled("kubeflow", mine)
    assert f"pyproject.toml into {tmp_path} ([project]" in str(caught.value)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "my_columns"\nversion = "1.0"\n')
    assert "my_columns.derive" in compiled("kubeflow", mine)
    with pytest.raises(ConfigError, match=r"training.loss=nowhere.loss: there is no Python module"):
        compiled("vertex", "training.loss=nowhere.loss")


def test_timeouts_are_of_pods_on_kubeflow_and_of_the_custom_job_on_vertex():
    given = "resources.Trainer.timeout_minutes=90"
    documents = list(yaml.safe_load_all(compiled("kubeflow", f"cluster.kubeflow.{given}")))
    pods = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert pods == {"Trainer_executor": {"activeDeadlineSeconds": "5400"}}
    job = custom_job(compiled("vertex", f"cluster.vertex.{given}", "training.workers=3"))
    assert job["scheduling"] == {"timeout": "5400s"}


def custom_job(text):
    executors = json.loads(text)["pipelineSpec"]["deploymentSpec"]["executors"]
    return executors["Trainer_executor"]["customJob"]["customJob"]["jobSpec"]


@pytest.mark.parametrize("target", BUCKETS)
@pytest.mark.parametrize(
    ("overrides", "minutes"),
    [
        ((), 5.0),
        (("training.checkpoint_every_minutes=0.5",), 0.5),
        (("training.checkpoint_every_minutes=null",), None),
    ],
)
def test_a_checkpoint_is_saved_every_five_minutes_unless_the_yaml_says_otherwise(
    target, overrides, minutes
):
    config = taxi(target, *overrides)
    there = at_target(config, getattr(config.cluster, target))
    assert there.training.checkpoint_every_minutes == minutes


def test_several_workers_are_pools_of_a_custom_job():
    text = compiled(
        "vertex",
        "training.workers=3",
        "cluster.vertex.machine_type=g2-standard-8",
        "cluster.vertex.resources.Trainer={accelerator: NVIDIA_L4, accelerator_count: 2}",
    )
    pools = custom_job(text)["workerPoolSpecs"]
    assert [pool["replicaCount"] for pool in pools] == ["1", "2"]
    assert (
        pools[0]["machineSpec"]
        == pools[1]["machineSpec"]
        == {
            "machineType": "g2-standard-8",
            "acceleratorType": "NVIDIA_L4",
            "acceleratorCount": 2,
        }
    )
    assert pools[0]["containerSpec"]["command"][-1] == "pipeline.targets.entry_point"
    # Its machines get the image one after the other, and wait for each other.
    assert re.search(r"start_timeout_seconds\W+900", text)
    servers = compiled("vertex", "training.workers=2", "training.strategy=parameter_server")
    counts = [pool["replicaCount"] for pool in custom_job(servers)["workerPoolSpecs"]]
    assert counts == ["1", "2", "1"]


def test_dataflow_runs_the_same_image_in_the_same_project():
    text = compiled(
        "vertex",
        "cluster.vertex.project=my-project",
        "cluster.vertex.region=europe-west4",
        "cluster.vertex.service_account=runs@my-project.iam.gserviceaccount.com",
        "cluster.vertex.beam={engine: dataflow, max_workers: 8, machine_type: n1-highmem-4}",
    )
    executors = spec_of(text)["deploymentSpec"]["executors"]
    given = executors["Transform_executor"]["container"]["args"]
    assert {
        "--runner=DataflowRunner",
        "--project=my-project",
        "--region=europe-west4",
        "--temp_location=gs://bucket/root/beam-temp",
        "--sdk_container_image=registry.example/tfx-largebatch:1.0",
        "--max_num_workers=8",
        "--machine_type=n1-highmem-4",
        "--service_account_email=runs@my-project.iam.gserviceaccount.com",
    } <= set(given)
    with pytest.raises(ConfigError, match="dataflow needs project, region"):
        compiled("vertex", "cluster.vertex.beam={engine: dataflow}")


def test_all_reasons_are_told_at_once():
    config = taxi("vertex", "cluster.vertex.image=x", "cluster.vertex.data_path=rides.csv")
    with pytest.raises(ConfigError) as caught:
        compile_pipeline(config, "vertex")
    assert len(str(caught.value).splitlines()) == 2


def test_without_a_profile_the_lines_to_add_are_told():
    with pytest.raises(ConfigError, match=r"cluster\.vertex: required.*\n  cluster:\n    vertex:"):
        compile_pipeline(load_config(TAXI), "vertex")


def test_the_command_writes_the_file_and_says_how_to_try_it(tmp_path, capsys):
    output = tmp_path / "taxi.yaml"
    overrides = [
        f"--set=cluster.kubeflow.{each}"
        for each in (
            "image=registry.example/x:1",
            "pipeline_root=s3://bucket/root",
            "data_path=s3://bucket/data/data.csv",
        )
    ]
    arguments = ["compile", "--target", "kubeflow", "--config", str(TAXI), *overrides]
    assert main([*arguments, "--output", str(output)]) == 0
    assert f"replay --spec {output}" in capsys.readouterr().out
    assert spec_of(output.read_text())["pipelineInfo"]["name"] == "chicago-taxi"
