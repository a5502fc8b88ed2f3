"""`image build` for each stack: the image's contents, and a replay of the taxi pipeline in it."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
import tfx
from command_line import ROOT, TAXI

from pipeline.image.build import _STACKS, _build_command, write_context, write_secrets

from .conftest import BEYOND, PACKAGE, Image, base_of

pytestmark = [pytest.mark.image, pytest.mark.timeout(2400)]

DATA = Path(tfx.__file__).parent / "examples" / "chicago_taxi_pipeline" / "data" / "simple"
LOOK = f"""
import getpass, importlib.metadata, importlib.util, json, os, pathlib, shutil, sys
import pipeline, {PACKAGE}.features, {BEYOND}
site = pathlib.Path(pipeline.__file__).parents[1]
sources = [p for p in site.rglob("*.py") if (p.parent / "__pycache__").is_dir()]
packages = ("pipeline", "trainer_module", "transform", "components", "{PACKAGE}", "tfx", "keras")
tag = sys.implementation.cache_tag
def compiled(path):
    return (path.parent / "__pycache__" / f"{{path.stem}}.{{tag}}.pyc").is_file()
def writable_for_all():
    found = []
    skipped = {{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"}}
    for folder, folders, files in os.walk("/"):
        folders[:] = [n for n in folders if os.path.join(folder, n) not in skipped]
        paths = [os.path.join(folder, n) for n in [*folders, *files]]
        found += [p for p in paths if not os.path.islink(p) and os.lstat(p).st_mode & 0o002]
    return found
print(json.dumps({{
    "user": [os.getuid(), getpass.getuser()],
    "home": [os.path.expanduser("~"), os.access(os.path.expanduser("~"), os.W_OK)],
    "python": sys.executable,
    "site": str(site),
    "tools": [t for t in ("g++", "gcc", "cc", "uv", "pip", "git", "make") if shutil.which(t)],
    "header": any(pathlib.Path("/usr/include").rglob("Python.h")),
    "not compiled": [str(p) for n in packages for p in (site / n).rglob("*.py") if not compiled(p)],
    "versions": {{d.name: d.version for d in importlib.metadata.distributions(path=[str(site)])}},
    "left": [p for p in ("/build", "/run/secrets/settings") if os.path.exists(p)],
    "secrets": [n for n in os.environ if n.startswith(("PIP_", "UV_", "SSL_"))],
    "keras": os.environ["TF_USE_LEGACY_KERAS"],
    "tmp": os.listdir("/tmp"),
    "headers": (site / "tensorflow" / "include").exists(),
    "mounts": [p for p in ("/gcs", "/minio", "/s3") if os.path.exists(p)],
    "writable for all": writable_for_all(),
}}))
"""

LOOK_FOR_CUDA = """
import ctypes, json, os
print(json.dumps({
    "runtime": ctypes.CDLL("libcudart.so.12").cudaGetErrorString is not None,
    "ptxas": os.access("/usr/local/cuda/bin/ptxas", os.X_OK),
    "libdevice": os.path.isfile("/usr/local/cuda/nvvm/libdevice/libdevice.10.bc"),
    "tmp": os.listdir("/tmp"),
    "LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"],
}))
"""


def test_the_image_has_the_locked_packages_and_no_tools(image: Image):
    seen = image.python(LOOK)
    assert seen["user"] == [1000, "tfx"]
    assert seen["home"] == ["/home/tfx", True]
    assert seen["python"] == "/opt/venv/bin/python"
    assert seen["site"].startswith("/opt/venv/lib/")  # installed, not this checkout
    assert (seen["tools"], seen["header"], seen["left"], seen["secrets"]) == ([], False, [], [])
    assert seen["not compiled"] == []
    assert (seen["tmp"], seen["headers"], seen["mounts"]) == ([], False, [])
    assert seen["writable for all"] == []
    assert seen["keras"] == "0"
    locked = ROOT / "requirements" / f"stack-{image.stack}" / "image.txt"
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", locked.read_text(), re.MULTILINE))
    names = {re.sub(r"[-_.]+", "-", n).lower(): v for n, v in seen["versions"].items()}
    assert {n: names.get(n) for n in pins} == pins
    assert set(names) - set(pins) == {"tfx-largebatch", PACKAGE.replace("_", "-"), BEYOND}


def test_the_command_line_runs_in_it_and_the_build_prints_the_next_commands(image: Image):
    assert "Usage: python -m pipeline" in image.run("python", "-m", "pipeline", "--help")
    assert f"TFX {image.stack} with buildah: {image.name}\n" in image.printed
    assert f"  buildah push {image.name}\n" in image.printed
    history = subprocess.run(
        ["buildah", "inspect", "--type", "image", image.name], capture_output=True, text=True
    ).stdout
    image_config = json.loads(history)["OCIv1"]
    assert len(image_config["rootfs"]["diff_ids"]) == 4
    printed = image_config["config"]
    assert printed["User"] == "1000"
    assert printed["Entrypoint"] == ["/usr/bin/tini", "--"]
    assert "certificates.crt" not in history  # where they are on this machine


def test_the_linker_and_xla_find_cuda_in_its_layer(image: Image, tmp_path):
    """With two of the CUDA packages, 30 MB: all of them are gigabytes."""
    stack = _STACKS[image.stack]
    context = tmp_path / "context"
    write_context(context, stack, [image.package], base=base_of(image.stack), cuda=True)
    text = stack.lock_file("cuda.txt").read_text()
    entries = re.split(r"^(?=nvidia-)", text, flags=re.MULTILINE)
    small = [each for each in entries if re.match(r"nvidia-cuda-(runtime|nvcc)-cu", each)]
    (context / "cuda.txt").write_text("".join(small))
    name = f"{image.name}-cuda"
    secrets = write_secrets(tmp_path)
    command = _build_command("buildah", context, [name], secrets, target="nodes")
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    seen = dataclasses.replace(image, name=name).python(LOOK_FOR_CUDA)
    assert seen == {
        "runtime": True,
        "ptxas": True,
        "libdevice": True,
        "tmp": [],
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    }


def test_a_pipeline_compiled_in_it_is_replayed_in_it(image: Image, tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    settings = {
        "features.derive": f"{PACKAGE}.features.derive",
        "cluster.kubeflow.image": image.name,
        "cluster.kubeflow.pipeline_root": "s3://bucket/root",
        "cluster.kubeflow.data_path": "s3://bucket/data/data.csv",
        # Replayed without a GPU.
        "cluster.kubeflow.resources.Trainer.accelerator": "nvidia.com/gpu",
    }
    image.run(
        *("python", "-m", "pipeline", "compile", "--target", "kubeflow", "--config", str(TAXI)),
        *("--output", f"{folder}/taxi.yaml"),
        *(f"--set={name}={value}" for name, value in settings.items()),
        write=[folder],
        read=[TAXI],
    )
    printed = image.run(
        *("python", "-m", "pipeline", "replay", f"{folder}/taxi.yaml"),
        *("--map", f"s3://bucket/data={DATA}", "--root", f"{folder}/root"),
        write=[folder],
        read=[DATA],
    )
    assert "blessed; compared with nothing" in printed
    pushed = folder / "root" / "chicago-taxi" / "serving_model"
    (model,) = pushed.glob("*/saved_model.pb")
    assert model.stat().st_uid == 1000  # not written by root
    # Its features are computed by a package that this machine's Python does not have.
    assert importlib.util.find_spec(PACKAGE) is None


def test_sigterm_ends_a_node_that_is_a_pods_first_process(image: Image):
    """A first process gets no signal that it has no handler for."""
    invocation = {"inputs": {}, "outputs": {"outputFile": "/tmp/output.json"}}
    run = ["buildah", "run", "--isolation=chroot", "--user=0", "--cap-add=CAP_SYS_ADMIN"]
    first = ["unshare", "--pid", "--fork", "--kill-child", "--setuid=1000"]
    node = ["python", "-m", "pipeline.targets.entry_point"]
    node += ["--executor_class_path", f"{PACKAGE}.sleeper.Executor"]
    node += ["--json_serialized_invocation_args", json.dumps(invocation)]
    with (
        image.container() as container,
        subprocess.Popen(
            [*run, container, "--", *first, *node], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert "at work\n" in iter(process.stdout.readline, "")
        deepest = psutil.Process(process.pid).children(recursive=True)[-1]
        try:
            deepest.send_signal(signal.SIGTERM)
            assert process.wait(60) == 143
        finally:
            if process.poll() is None:
                deepest.kill()
