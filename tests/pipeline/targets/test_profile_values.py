"""Values of a profile that production needs, or that fail in a cluster alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.serving.exported_model import ExportedModel
from pipeline.serving.kserve import inference_service
from pipeline.targets import kubeflow
from pipeline.targets.compile import at_target, compile_pipeline
from pipeline.targets.refusals import refusals
from pipeline.targets.run_time_parameters import check_values
from pipeline.targets.secret_checks import looks_secret

TAXI = Path(__file__).resolve().parents[3] / "examples" / "taxi" / "pipeline.yaml"
BUCKETS = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}
DAYS = "s3://bucket/day={YYYY}-{MM}-{DD}/*.csv"


def load(target, *overrides):
    place = f"cluster.{target}"
    settings = (
        f"{place}.image=registry.example/x:1",
        f"{place}.pipeline_root={BUCKETS[target]}/root",
        f"{place}.data_path={BUCKETS[target]}/data/data.csv",
    )
    return load_config(TAXI, [*settings, *overrides])


def refused(target, *overrides):
    config = load(target, *overrides)
    profile = getattr(config.cluster, target)
    return refusals(config, at_target(config, profile), profile)


@pytest.mark.parametrize(
    ("target", "kind"), [("kubeflow", "nvidia.com/gpu"), ("vertex", "NVIDIA_L4")]
)
def test_a_trainer_with_a_gpu_still_saves_checkpoints_by_time(target, kind):
    config = load(target, f"cluster.{target}.resources.Trainer={{accelerator: {kind}}}")
    training = at_target(config, getattr(config.cluster, target)).training
    assert (training.checkpoint_every_minutes, training.require_gpu) == (5.0, True)


@pytest.mark.parametrize(
    ("image", "is_fixed"),
    [
        (f"registry.example:5000/ml/x:1.0@sha256:{'a' * 64}", True),
        (f"registry.example:5000/ml/x@sha256:{'a' * 64}", True),
        ("registry.example:5000/ml/x", False),
        ("x:1@sha256:ab", False),
    ],
)
def test_an_image_needs_a_tag_or_a_digest_and_may_have_both(image, is_fixed):
    assert (refused("kubeflow", f"cluster.kubeflow.image={image}") == []) == is_fixed


@pytest.mark.parametrize("field", ["cpu_request: 500", "memory_request_gib: 64000"])
def test_requests_have_the_bounds_of_limits(field):
    (found,) = refused("kubeflow", f"cluster.kubeflow.resources.Trainer={{{field}}}")
    assert field.replace(": ", "=") in found


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("DB_PASS", "x", True),
        ("MINIO_SECRETKEY", "x", True),
        ("PIP_INDEX_URL", "https://ghp_0123456789abcdefghij@host/simple", True),
        ("HTTPS_PROXY", "http://user@proxy:3128", False),
        ("NUM_PASSES", "3", False),
        ("AWS_ENDPOINT_URL", "http://minio:9000", False),
    ],
)
def test_variables_that_hold_credentials_are_recognised(name, value, is_secret):
    assert (looks_secret(name, value) is not None) == is_secret


def test_a_credential_among_beams_options_is_refused_without_its_value():
    beam = "{engine: in_memory, extra_args: [--s3_secret_access_key=AKS]}"
    (found,) = refused("kubeflow", f"cluster.kubeflow.beam={beam}")
    assert "s3_secret_access_key" in found
    assert "AKS" not in found


def test_data_and_evaluation_rows_both_have_a_span_or_neither():
    (found,) = refused(
        "kubeflow",
        f"cluster.kubeflow.data_path={DAYS}",
        "data.eval_path=x.csv",
        "cluster.kubeflow.eval_path=s3://bucket/eval.csv",
    )
    assert "one of them alone" in found


def test_claims_have_other_names_than_the_volumes_that_the_profile_makes():
    text = compile_pipeline(
        load(
            "kubeflow",
            "cluster.kubeflow.volumes=[{claim: scratch, mount_path: /mnt/a}, "
            "{claim: shm, mount_path: /mnt/b}]",
            "cluster.kubeflow.shm_gib=1",
            "cluster.kubeflow.scratch_volume={size_gib: 5}",
        ),
        "kubeflow",
    )
    platform = list(yaml.safe_load_all(text))[1]["platforms"]["kubernetes"]
    pod = platform["deploymentSpec"]["executors"]["Trainer_executor"]
    names = [volume["constant"] for volume in pod["pvcMount"]]
    for kind in ("emptyDirMounts", "genericEphemeralVolume"):
        names += [volume["volumeName"] for volume in pod[kind]]
    assert len(names) == 4
    assert len(set(names)) == len(names)


def test_a_path_given_as_a_parameter_needs_the_span_that_the_window_asks_for():
    overrides = (
        *("data.spans=3", f"cluster.kubeflow.data_path={DAYS}"),
        "cluster.kubeflow.parameters=[data.path]",
    )
    spec = next(yaml.safe_load_all(compile_pipeline(load("kubeflow", *overrides), "kubeflow")))
    check_values(spec, {"data_path": "s3://bucket/{YYYY}-{MM}-{DD}/*.csv"})
    with pytest.raises(ConfigError, match=r"data\.spans is 3"):
        check_values(spec, {"data_path": "s3://bucket/plain.csv"})


def test_no_place_may_be_of_minios_own_scheme():
    config = load("kubeflow", "cluster.kubeflow.data_path=minio://bucket/data.csv")
    profile = config.cluster.kubeflow
    (found,) = kubeflow.refusals(at_target(config, profile), profile)
    assert "data.path=minio://bucket/data.csv" in found


@pytest.mark.parametrize(("version", "is_taken"), [("2.16.1-gpu", True), ("2.16.1", False)])
def test_a_server_with_a_gpu_needs_the_image_for_it(version, is_taken):
    server = f"cluster.kubeflow.server={{accelerator: nvidia.com/gpu, version: {version}}}"
    profile = load("kubeflow", server).cluster.kubeflow
    model = ExportedModel("/m/1", "2.16.2", {}, [])
    if is_taken:
        inference_service(model, "s3://b/m", "taxi", profile)
        return
    with pytest.raises(ConfigError, match=r"2\.16\.1-gpu"):
        inference_service(model, "s3://b/m", "taxi", profile)


def test_dataflow_encrypts_with_the_key_of_the_profile():
    key = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
    overrides = (
        *("cluster.vertex.project=my-project", "cluster.vertex.region=europe-west4"),
        *(f"cluster.vertex.encryption_key={key}", "cluster.vertex.beam={engine: dataflow}"),
    )
    config = load("vertex", *overrides)
    arguments = at_target(config, config.cluster.vertex).beam.pipeline_args()
    assert f"--dataflow_kms_key={key}" in arguments
    assert refused("vertex", *overrides) == []
