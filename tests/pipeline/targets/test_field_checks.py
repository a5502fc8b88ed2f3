"""Values of a profile that a platform would refuse: refused when the pipeline is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pipeline.config.config_file import load_config
from pipeline.targets.field_checks import field_refusals
from pipeline.targets.secret_checks import looks_secret

TAXI = Path(__file__).resolve().parents[3] / "examples" / "taxi" / "pipeline.yaml"
BUCKETS = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}
TRAINER = "trainer@my-project.iam.gserviceaccount.com"


def found(tmp_path, target, **fields):
    """What is refused of the taxi pipeline with a profile of these fields."""
    config = yaml.safe_load(TAXI.read_text())
    profile = {
        "image": "registry.example/team/name:1.0",
        "pipeline_root": f"{BUCKETS[target]}/root",
        "data_path": f"{BUCKETS[target]}/data/data.csv",
        **fields,
    }
    config["cluster"] = {target: profile}
    file = tmp_path / "my.yaml"
    file.write_text(yaml.safe_dump(config))
    loaded = load_config(file)
    return field_refusals(loaded, getattr(loaded.cluster, target))


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (
            "kubeflow",
            {
                "service_account": "pipeline-runner.v1",
                "environment": {
                    "AWS_ENDPOINT_URL": "http://minio:9000",
                    "AWS_ACCESS_KEY_ID": "an-id",
                    "TOKENIZERS_PARALLELISM": "false",
                    "_x.y-z": "",
                },
                "secrets": {"minio.v1": {"access-key_1.x": "A", "secretkey": "B"}},
                "resources": {
                    "default": {"cpu": 384, "memory_gib": 32768, "timeout_minutes": 1e6},
                    "Trainer": {"accelerator": "nvidia.com/gpu", "accelerator_count": 16},
                    "Tuner": {"accelerator": "aws.amazon.com/neuroncore", "accelerator_count": 32},
                },
                "baseline_model": "gs://bucket/model",
            },
        ),
        (
            "vertex",
            {
                "service_account": TRAINER,
                "network": "projects/12345/global/networks/default",
                "region": "northamerica-northeast1",
                "project": "example.com:my-project",
                "machine_type": "n1-custom-8-30720",
                "labels": {f"label{n}": "x" for n in range(61)},
                "resources": {"Trainer": {"cpu": 96, "memory_gib": 580}},
                "pipeline_root": "gs://my_bucket.example.com/root",
            },
        ),
        ("vertex", {"service_account": "12345-compute@developer.gserviceaccount.com"}),
        ("vertex", {"service_account": "x@my-project.eu0.iam.gserviceaccount.com"}),
        ("vertex", {"region": "us-central1", "project": "123456"}),
        ("kubeflow", {"image": "localhost:5000/a__b/c-d.e@sha256:" + "0" * 64}),
        ("kubeflow", {"image": "name:latest"}),
    ],
)
def test_valid_values_are_accepted(tmp_path, target, fields):
    assert found(tmp_path, target, **fields) == []


@pytest.mark.parametrize(
    ("target", "fields", "facts"),
    [
        ("vertex", {"network": "default"}, ["network=default", "projects/NUMBER/global/networks/"]),
        ("vertex", {"network": "projects/my-project/global/networks/x"}, ["NUMBER"]),
        ("vertex", {"service_account": "trainer"}, ["service_account=trainer", "e-mail"]),
        ("vertex", {"service_account": "me@example.com"}, ["e-mail"]),
        ("vertex", {"service_account": f"{TRAINER}.evil.com"}, ["e-mail"]),
        ("vertex", {"region": "europe-west4-a"}, ["region=europe-west4-a", "not a zone"]),
        ("vertex", {"region": "Europe"}, ["region=Europe"]),
        ("vertex", {"project": "My Project"}, ["project=My Project", "6 to 30"]),
        ("vertex", {"project": "mine"}, ["project=mine"]),
        ("vertex", {"machine_type": "large"}, ["machine_type=large", "n1-standard-8"]),
        (
            "vertex",
            {"labels": {f"label{n}": "x" for n in range(62)}},
            ["labels: 62 labels", "may have 61"],
        ),
        ("vertex", {"pipeline_root": "gs://"}, ["pipeline_root=gs://: names no bucket"]),
        ("vertex", {"pipeline_root": "gs:///root"}, ["names no bucket; use gs://bucket/folder"]),
        ("vertex", {"data_path": "gs://Bucket/x"}, ["data_path=gs://Bucket/x: Bucket is no name"]),
        ("vertex", {"eval_path": "gs://b/x"}, ["eval_path=gs://b/x: b is no name of a bucket"]),
        ("vertex", {"schema_path": f"gs://{'b' * 64}/x"}, ["3 to 63"]),
        ("kubeflow", {"pipeline_root": "s3://10.0.0.1/x"}, ["10.0.0.1 is no name of a bucket"]),
        ("kubeflow", {"pipeline_root": "s3://my_bucket/x"}, ["my_bucket is no name"]),
        ("kubeflow", {"pipeline_root": "s3://a..b/x"}, ["a..b is no name"]),
        ("kubeflow", {"baseline_model": "s3:///x"}, ["baseline_model=s3:///x: names no bucket"]),
        ("kubeflow", {"image": "registry.example/Team/name:1.0"}, ["image=", "lower-case"]),
        ("kubeflow", {"image": "user:password@registry.example/name:1.0"}, ["no image reference"]),
        ("kubeflow", {"service_account": "Trainer"}, ["service_account=Trainer", "ServiceAccount"]),
        ("kubeflow", {"service_account": TRAINER}, ["leave out what follows @"]),
        (
            "kubeflow",
            {"resources": {"Trainer": {"cpu": 500}}},
            ["resources.Trainer.cpu=500", "384 cores", "0.5?"],
        ),
        (
            "kubeflow",
            {"resources": {"default": {"memory_gib": 65536}}},
            ["resources.default.memory_gib=65536", "32768 GiB", "64?"],
        ),
        ("vertex", {"resources": {"Trainer": {"cpu": 97}}}, ["cpu=97", "96 cores"]),
        ("vertex", {"resources": {"Trainer": {"memory_gib": 600}}}, ["memory_gib=600", "581 GiB"]),
        (
            "kubeflow",
            {"resources": {"Trainer": {"cpu": float("inf"), "memory_gib": float("inf")}}},
            ["cpu=inf", "memory_gib=inf"],
        ),
        (
            "kubeflow",
            {"resources": {"Trainer": {"timeout_minutes": float("inf")}}},
            ["timeout_minutes=inf", "35791394"],
        ),
        (
            "kubeflow",
            {"resources": {"Trainer": {"accelerator": "nvidia.com/gpu", "accelerator_count": 17}}},
            ["accelerator_count=17", "1 to 16"],
        ),
        (
            "kubeflow",
            {"resources": {"Trainer": {"accelerator": "NVIDIA/gpu/1"}}},
            ["accelerator=NVIDIA/gpu/1", "nvidia.com/gpu"],
        ),
        ("kubeflow", {"environment": {"1BAD": "x"}}, ["environment: '1BAD'", "no digit first"]),
        ("kubeflow", {"environment": {"A=B": "x"}}, ["'A=B'"]),
        ("kubeflow", {"environment": {"": "x"}}, ["''"]),
        ("kubeflow", {"environment": {"A": "x\0"}}, ["environment.A", "zero byte"]),
        ("kubeflow", {"secrets": {"My_Secret": {"k": "A"}}}, ["secrets.My_Secret", "lower-case"]),
        ("kubeflow", {"secrets": {"s": {}}}, ["secrets.s: names no key"]),
        ("kubeflow", {"secrets": {"s": {"a key": "A"}}}, ["secrets.s.a key", "no key of"]),
        ("kubeflow", {"secrets": {"s": {"k": "1A"}}}, ["secrets.s.k: '1A'"]),
        ("kubeflow", {"secrets": {"s": {"k": "A", "l": "A"}}}, ["variable A is set twice"]),
        (
            "kubeflow",
            {"environment": {"A": "x"}, "secrets": {"s": {"k": "A"}}},
            ["variable A is set twice"],
        ),
        (
            "kubeflow",
            {"environment": {"AWS_SECRET_ACCESS_KEY": "tell-nobody"}},
            [
                "environment.AWS_SECRET_ACCESS_KEY",
                "cluster.kubeflow.secrets: {NAME: {key: AWS_SECRET_ACCESS_KEY}}",
            ],
        ),
        (
            "kubeflow",
            {"environment": {"DATABASE": "postgres://me:tell-nobody@host/db"}},
            ["environment.DATABASE", "URL with a password", "secrets"],
        ),
    ],
)
def test_other_values_are_refused_with_their_fix(tmp_path, target, fields, facts):
    told = "\n".join(found(tmp_path, target, **fields))
    for fact in facts:
        assert fact in told
    assert f"cluster.{target}." in told
    assert "tell-nobody" not in told


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "password", "DB_PASSWORD"),
        *("MINIO_SECRET_KEY", "OPENAI_API_KEY", "WANDB_API_KEY", "client.secret", "GH-TOKEN"),
        *("PRIVATE_KEY", "MY_PASSPHRASE", "AZURE_STORAGE_KEY"),
    ],
)
def test_names_of_credentials_are_recognised(name):
    assert looks_secret(name, "x")
    assert looks_secret(name, "") is None  # nothing to hide


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/secrets/key.json"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
        ("MAX_TOKENS", "512"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("SSH_PUBLIC_KEY", "ssh-ed25519 AAAA"),
        ("KEYBOARD", "us"),
        ("KEY", "x"),
        ("PROXY", "http://user@proxy:8080/a:b@c"),
        ("URL", "http://host:80/x@y"),
    ],
)
def test_other_variables_are_none(name, value):
    assert looks_secret(name, value) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-----BEGIN RSA PRIVATE KEY-----\nMII", "private key"),
        ('{"private_key": "-----BEGIN PRIVATE KEY-----"}', "private key"),
        ("x=https://user:pa55@host/", "URL with a password"),
        ("redis://:pa55@host/0", "URL with a password"),
    ],
)
def test_values_of_credentials_are_recognised_under_any_name(value, reason):
    assert reason in (looks_secret("SETTING", value) or "")
