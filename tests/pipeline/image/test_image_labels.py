"""The labels of an image as docker, podman and buildah print them, and a GPU node without CUDA."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.image.image_labels import cuda_label, has_no_cuda, image_labels
from pipeline.targets.compile import at_target, compile_pipeline

ROOT = Path(__file__).resolve().parents[3]
TAXI = ROOT / "examples" / "taxi" / "pipeline.yaml"
IMAGE = "registry.example/tfx-largebatch:1.0"
OURS = {"tfx-largebatch.stack": "1.16"}
WITHOUT = {**OURS, "tfx-largebatch.cuda": "false"}
WITH = {**OURS, "tfx-largebatch.cuda": "true"}


@pytest.fixture
def tools(tmp_path, monkeypatch) -> Path:
    """The only folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "sleep", "cat"):
        (folder / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(tools: Path, name: str, text: str) -> None:
    (tools / name).write_text(f"#!/bin/sh\n{text}\n")
    (tools / name).chmod(0o755)


def builder(tools: Path, name: str, labels: dict[str, str] | None) -> None:
    """Write a program that prints what the builder's `inspect` prints for these labels."""
    config = {"User": "1000", **({} if labels is None else {"Labels": labels})}
    if name == "buildah":
        words = f"inspect --type image {IMAGE}"
        printed: object = {"Type": "buildah 0.0.1", "Config": "{}", "OCIv1": {"config": config}}
    else:
        words = f"image inspect {IMAGE}"
        printed = [{"Id": "sha256:0", "Config": config}]
    answer = tools / f"{name}.json"
    answer.write_text(json.dumps(printed))
    program(tools, name, f'[ "$*" = "{words}" ] || exit 125\ncat {answer}')


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
@pytest.mark.parametrize(
    ("labels", "rejected"),
    [(WITHOUT, True), (OURS, True), (WITH, False), ({"maintainer": "me"}, False), (None, False)],
    ids=["false", "older", "true", "another", "none"],
)
def test_labels_are_read_from_each_builder(tools, name, labels, rejected):
    builder(tools, name, labels)
    assert image_labels(IMAGE) == [labels or {}]
    assert has_no_cuda(IMAGE) == rejected


def test_broken_builders_are_ignored(tools):
    assert not has_no_cuda(IMAGE)  # none is installed
    program(tools, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    program(tools, "podman", "echo not json")
    (tools / "buildah").write_bytes(b"\x7fELF broken")
    (tools / "buildah").chmod(0o755)
    assert image_labels(IMAGE) == []
    assert not has_no_cuda(IMAGE)


def test_a_builder_that_does_not_answer_is_ignored(tools):
    builder(tools, "buildah", WITHOUT)
    # Its child outlives it and keeps its output open.
    program(tools, "docker", "sleep 90 & exec sleep 90")
    started = time.monotonic()
    assert image_labels(IMAGE, timeout=2) == [WITHOUT]
    assert time.monotonic() - started < 60


def test_contradicting_builders_reject_nothing(tools):
    builder(tools, "docker", WITHOUT)
    builder(tools, "buildah", WITH)
    assert not has_no_cuda(IMAGE)


def test_cuda_label():
    assert cuda_label(True, None) == cuda_label(True, "nvidia/cuda:1") == "true"
    assert cuda_label(None, None) == cuda_label(False, None) == "false"
    assert cuda_label(None, "mirror.example/debian:1") == "false"
    assert cuda_label(False, "nvidia/cuda:1") == "base"  # explicit: the base has the libraries


def taxi(target: str, *overrides: str):
    place = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}[target]
    section = f"cluster.{target}"
    return load_config(
        TAXI,
        [
            f"{section}.image={IMAGE}",
            f"{section}.pipeline_root={place}/root",
            f"{section}.data_path={place}/data/data.csv",
            *overrides,
        ],
    )


@pytest.mark.parametrize(
    ("target", "node", "kind"),
    [
        ("kubeflow", "Trainer", "nvidia.com/gpu"),
        ("kubeflow", "default", "nvidia.com/mig-1g.5gb"),
        ("vertex", "Trainer", "NVIDIA_TESLA_T4"),
    ],
)
def test_compile_rejects_a_gpu_with_an_image_without_cuda(tools, target, node, kind):
    builder(tools, "buildah", WITHOUT)
    wrong = f"cluster.{target}.resources.{node}.accelerator={kind}"
    with pytest.raises(ConfigError) as error:
        compile_pipeline(taxi(target, wrong), target)
    assert wrong in str(error.value)
    assert f"python -m pipeline image build --cuda --tag {IMAGE}" in str(error.value)
    assert compile_pipeline(taxi(target, f"cluster.{target}.resources.Trainer.cpu=1"), target)
    if kind != "nvidia.com/mig-1g.5gb":
        builder(tools, "buildah", WITH)
        assert kind in compile_pipeline(taxi(target, wrong), target)


def test_a_trainer_with_a_gpu_requires_it_unless_the_user_says_otherwise():
    gpu = "cluster.kubeflow.resources.Trainer.accelerator=nvidia.com/gpu"

    def require_gpu(*overrides):
        config = taxi("kubeflow", *overrides)
        assert config.cluster is not None
        assert config.cluster.kubeflow is not None
        return at_target(config, config.cluster.kubeflow).training.require_gpu

    assert require_gpu(gpu) is True
    assert require_gpu(gpu.replace("Trainer", "default")) is True
    assert require_gpu(gpu, "training.require_gpu=false") is False
    assert require_gpu(gpu.replace("Trainer", "Transform")) is None
    assert require_gpu("cluster.kubeflow.resources.Trainer.accelerator=google.com/tpu") is None


def test_the_compiled_trainer_has_the_setting(tools):
    text = compile_pipeline(
        taxi("kubeflow", "cluster.kubeflow.resources.Trainer.accelerator=nvidia.com/gpu"),
        "kubeflow",
    )
    assert " ".join(text.split()).count('"require_gpu": true') == 1  # YAML folds lines
