"""Engines that nodes reach, disk and machines: in the compiled file, or refused with a fix."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from google.cloud import aiplatform_v1
from google.protobuf import json_format

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.targets.compile import at_target, compile_pipeline, profile_of
from pipeline.targets.engine_refusals import engine_refusals

TAXI = Path(__file__).resolve().parents[3] / "examples" / "taxi" / "pipeline.yaml"
BUCKETS = {"kubeflow": "gs://bucket", "vertex": "gs://bucket"}
KEY = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"


def settings(target, *overrides):
    """The taxi pipeline with a profile of the target, as of `--set`."""
    given = [
        f"cluster.{target}.image=registry.example/tfx-largebatch:1.0",
        f"cluster.{target}.pipeline_root={BUCKETS[target]}/root",
        f"cluster.{target}.data_path={BUCKETS[target]}/data/data.csv",
    ]
    return [*given, *overrides]


def compiled(target, *overrides):
    return compile_pipeline(load_config(TAXI, settings(target, *overrides)), target)


def engine_errors(target, beam):
    config = load_config(TAXI, settings(target, f"cluster.{target}.beam={{{beam}}}"))
    profile = profile_of(config, target)
    return "\n".join(engine_refusals(at_target(config, profile), profile))


def node(text, name="Trainer"):
    spec = next(iter(yaml.safe_load_all(text)))
    return spec.get("pipelineSpec", spec)["deploymentSpec"]["executors"][f"{name}_executor"]


HOSTS = ("localhost", "LOCALHOST", "127.0.0.1", "127.1", "0.0.0.0", "jobs.localhost")


@pytest.mark.parametrize("target", BUCKETS)
@pytest.mark.parametrize("engine", ["flink", "spark", "portable"])
def test_a_job_server_on_the_own_machine_is_refused(target, engine):
    for host in HOSTS:
        found = engine_errors(
            target, f"engine: {engine}, job_endpoint: '{host}:8099', environment: external"
        )
        assert f"cluster.{target}.beam.job_endpoint={host}:8099: the node itself" in found
        assert "flink-job-server.flink.svc:8099" in found
    if engine != "portable":  # whose default is the job server inside of the node
        assert "job_endpoint=localhost:8099: the node itself" in engine_errors(
            target, f"engine: {engine}"
        )


def test_an_ipv6_address_of_the_own_machine_is_no_host_and_port():
    with pytest.raises(ConfigError, match=r"\[::1\]:8099.*expected host:port"):
        engine_errors("kubeflow", "engine: flink, job_endpoint: '[::1]:8099'")


@pytest.mark.parametrize(
    ("beam", "message"),
    [
        ("engine: flink, job_endpoint: 'jobs:8099'", "environment=loopback: the Python code runs"),
        (
            "engine: portable, environment: external",
            "worker_pool=localhost:50000: the node itself, where no worker pool runs",
        ),
        (
            "engine: flink, job_endpoint: 'jobs:8099', environment: external, "
            "worker_pool: '0.0.0.0:50000'",
            "beam.worker_pool=localhost:50000 for a pool beside each",
        ),
        (
            "engine: portable, environment: docker, worker_image: 'x:1'",
            "environment=docker: the job server in the node starts containers",
        ),
    ],
)
def test_workers_that_nobody_reaches_are_refused(beam, message):
    assert message in engine_errors("kubeflow", beam)


@pytest.mark.parametrize(
    "beam",
    [
        "engine: in_memory",
        "engine: portable",
        "engine: flink, job_endpoint: 'jobs:8099', environment: external",
        "engine: spark, job_endpoint: 'jobs:8099', environment: docker, worker_image: 'x:1'",
        "engine: flink, job_endpoint: '10.0.0.7:8099', environment: external, "
        "worker_pool: 'pool:50000'",
    ],
)
def test_engines_that_nodes_reach_are_taken(beam):
    assert engine_errors("kubeflow", beam) == ""


def test_the_beam_section_of_the_whole_pipeline_is_checked_too():
    with pytest.raises(ConfigError, match=r"^beam\.job_endpoint=localhost:8099: the node itself"):
        compiled("kubeflow", "beam={engine: flink}")


@pytest.mark.parametrize("target", BUCKETS)
def test_each_fix_for_data_that_exceed_the_memory_compiles(target):
    project = ["cluster.vertex.project=my-project", "cluster.vertex.region=europe-west4"]
    large = [f"cluster.{target}.data_gib=10", *(project if target == "vertex" else [])]
    with pytest.raises(ConfigError, match="about 81 GiB") as caught:
        compiled(target, *large)
    memory, engine = re.findall(rf"cluster\.{target}\.[\w.]+=(?:\{{.*?\}}|\d+)", str(caught.value))[
        -2:
    ]
    assert memory == f"cluster.{target}.resources.ArrowExampleGen.memory_gib=81"
    assert node(compiled(target, *large, memory), "ArrowExampleGen")
    arguments = node(compiled(target, *large, engine), "ArrowExampleGen")["container"]["args"]
    runner = {"kubeflow": "PortableRunner", "vertex": "DataflowRunner"}[target]
    assert f"--runner={runner}" in arguments
    assert not [each for each in arguments if "localhost:8099" in each or "LOOPBACK" in each]


def test_no_engine_is_named_where_its_workers_do_not_read_the_bucket():
    s3 = "cluster.kubeflow.pipeline_root=s3://bucket/root"
    with pytest.raises(ConfigError, match=r"give .*memory_gib=81\.$"):
        compiled("kubeflow", "cluster.kubeflow.data_gib=10", s3)


def test_disk_is_a_limit_of_the_container_and_proposed_by_the_command(tmp_path, capsys):
    """KFP's driver copies the accelerator to the limits, and Kubernetes takes it as the request."""
    output = tmp_path / "taxi.yaml"
    place = "cluster.kubeflow.resources"
    given = settings(
        "kubeflow",
        "cluster.kubeflow.data_gib=1.5",
        f"{place}.default={{ephemeral_storage_gib: 4, cpu: 1, cpu_request: 0.5}}",
        f"{place}.Trainer={{accelerator: nvidia.com/gpu, scratch_volume: {{size_gib: 2}}}}",
    )
    arguments = ["--config", str(TAXI), "--output", str(output), *(f"--set={e}" for e in given)]
    assert main(["compile", "--target", "kubeflow", *arguments]) == 0
    said = capsys.readouterr().out
    assert "about 4 GiB each for 1.5 GiB of data" in said
    assert "  cluster.kubeflow.resources.Trainer.scratch_volume: {size_gib: 4}" in said
    assert "default.ephemeral" not in said  # has enough
    text = output.read_text()
    assert node(text, "Transform")["container"]["resources"] == {
        "cpuLimit": 1.0,
        "cpuRequest": 0.5,
        "accelerator": {
            "type": "ephemeral-storage",
            "count": str(4 * 2**30),
            "resourceType": "ephemeral-storage",
            "resourceCount": str(4 * 2**30),
        },
    }
    assert node(text)["container"]["resources"]["accelerator"]["type"] == "nvidia.com/gpu"
    platform = list(yaml.safe_load_all(text))[1]["platforms"]["kubernetes"]
    pods = platform["deploymentSpec"]["executors"]
    assert pods["Trainer_executor"]["genericEphemeralVolume"][0]["mountPath"] == "/gcs"
    assert pods.keys() == {"Trainer_executor"}


def test_machines_of_vertex_make_the_trainer_a_custom_job():
    text = compiled(
        "vertex",
        "cluster.vertex.spot=true",
        "cluster.vertex.boot_disk_gib=200",
        f"cluster.vertex.encryption_key={KEY}",
        "cluster.vertex.machine_type=g2-standard-8",
        "cluster.vertex.resources.Trainer={accelerator: NVIDIA_L4, timeout_minutes: 90}",
    )
    job = json.loads(text)
    read = aiplatform_v1.PipelineJob.pb(aiplatform_v1.PipelineJob())
    json_format.ParseDict({**job, "pipelineSpec": {}}, read, ignore_unknown_fields=False)
    assert read.encryption_spec.kms_key_name == KEY
    spec = custom_job(text)
    assert spec.scheduling.strategy == aiplatform_v1.Scheduling.Strategy.SPOT
    assert spec.scheduling.timeout.total_seconds() == 5400
    (pool,) = spec.worker_pool_specs
    assert (pool.replica_count, pool.disk_spec.boot_disk_size_gb) == (1, 200)
    assert pool.machine_spec.machine_type == "g2-standard-8"
    assert pool.container_spec.command[-1] == "pipeline.targets.entry_point"
    assert "container" in node(text, "Transform")


def custom_job(text):
    """The Trainer's CustomJobSpec, as Google's own proto reads it."""
    job = node(text)["customJob"]["customJob"]["jobSpec"]
    spec = aiplatform_v1.CustomJobSpec()
    json_format.ParseDict(job, aiplatform_v1.CustomJobSpec.pb(spec))
    return spec


def test_workers_of_vertex_restart_together_on_machines_of_ones_own():
    text = compiled(
        "vertex",
        "training.workers=2",
        "cluster.vertex.restart_on_worker_restart=true",
        "cluster.vertex.persistent_resource=training-pool",
    )
    spec = custom_job(text)
    assert spec.scheduling.restart_job_on_worker_restart
    assert spec.persistent_resource_id == "training-pool"
    assert len(spec.worker_pool_specs) == 2


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["cluster.vertex.boot_disk_gib=50"], r"boot_disk_gib=50: .*greater than or equal to 100"),
        (["cluster.vertex.encryption_key=k"], r"not a Cloud KMS key; use projects/P/locations/"),
        (["cluster.vertex.persistent_resource=A"], r"persistent_resource='A': not the id of"),
        (
            ["cluster.vertex.persistent_resource=a", "cluster.vertex.spot=true"],
            r"spot=True: the machines of persistent_resource=a exist already",
        ),
        (
            [f"cluster.vertex.encryption_key={KEY}", "cluster.vertex.region=us-east1"],
            r"a key of europe-west4, and cluster\.vertex\.region is us-east1",
        ),
        (
            ["cluster.vertex.restart_on_worker_restart=true"],
            r"restart_on_worker_restart: is for .* training\.workers is 1; remove it",
        ),
        (
            ["cluster.vertex.spot=true", "cluster.vertex.resources.Trainer.cpu=4"],
            r"cpu and memory_gib are not asked for by.*name cluster\.vertex\.machine_type",
        ),
        (
            ["cluster.vertex.resources.Trainer.node_selector={a: b}"],
            r"resources\.Trainer\.node_selector: only Kubeflow has it; remove it",
        ),
        (
            ["cluster.vertex.resources.default.ephemeral_storage_gib=50"],
            r"default\.ephemeral_storage_gib: only Kubeflow has it.*cluster\.vertex\.boot_disk_gib",
        ),
        (
            ["cluster.vertex.tolerations=[]"],
            r"cluster\.vertex\.tolerations: unknown key",
        ),
    ],
)
def test_what_vertex_does_not_have_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        compiled("vertex", *overrides)
