"""`image build` up to the builder: names, packages, secrets, errors of the builder."""

from __future__ import annotations

import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.image import build
from pipeline.image.build import (
    _COMPILED,
    _STACKS,
    _split_dependencies,
    stack_named,
    write_context,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def package(tmp_path) -> Path:
    folder = tmp_path / "mine"
    (folder / "my_package" / "output").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "my_package"\nversion = "1.0"\n')
    (folder / "my_package" / "__init__.py").touch()
    (folder / "my_package" / "output" / "table.csv").write_text("a,b\n")
    for ignored in (".venv/bin/python", "build/lib.py", "my_package/__pycache__/a.pyc"):
        (folder / ignored).parent.mkdir(parents=True, exist_ok=True)
        (folder / ignored).touch()
    return folder


@pytest.fixture
def tools(tmp_path, monkeypatch) -> Path:
    """The only folder on PATH; tests write programs with the names of builders into it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def write(folder: Path, stack: str, *packages: Path, cuda: bool = False) -> str:
    """Write a context, and return its Containerfile."""
    write_context(folder, _STACKS[stack], packages, base=None, cuda=cuda)
    return (folder / "Containerfile").read_text()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("stack", _STACKS)
def test_an_image_has_the_pins_of_the_lock_file_for_its_python(stack: str):
    machine = {"python_version": _STACKS[stack].python, "sys_platform": "linux", "extra": ""}
    machine |= {"platform_machine": "x86_64", "platform_python_implementation": "CPython"}
    machine["python_full_version"] = {"3.11": "3.11.2", "3.13": "3.13.5"}[_STACKS[stack].python]
    locked = {}
    for line in _STACKS[stack].lock_file("lock.txt").read_text().splitlines():
        if "==" in line and not line.lstrip().startswith("#"):
            pin = Requirement(line)
            if pin.marker is None or pin.marker.evaluate(machine):
                locked[pin.name] = str(pin.specifier).removeprefix("==")
    text = _STACKS[stack].lock_file("image.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+) \\$", text, re.MULTILINE))
    assert {name: locked.get(name) for name in pinned} == pinned, "run `make lock`"
    assert {"tfx", "tensorflow", "kfp", "boto3", *_COMPILED} <= set(pinned)
    assert not {"pytest", "ruff", "uv", "mkdocs"} & set(pinned)
    assert text.count("--hash=sha256:") > len(pinned)
    wheels, compiled = _split_dependencies(text)
    assert compiled.startswith(f"{_COMPILED[0]}==")
    assert wheels.count("==") + compiled.count("==") == text.count("==")


def test_the_context_is_complete_without_build_outputs(package, tmp_path):
    folder = tmp_path / "context"
    (package / "my_package" / "data").symlink_to(package)  # not followed
    (package / "nothing").symlink_to("nowhere")
    os.mkfifo(package / "pipe")
    text = write(folder, "1.21", package)
    there = files(folder)
    assert files(folder / "packages" / "1-mine") == MINE
    assert "packages/tfx-largebatch/transform/preprocessing.py" in there
    assert not [name for name in there if "__pycache__" in name or ".venv" in name]
    assert not re.search(r"^ARG \w+$", text, re.MULTILINE)  # each has its value
    assert "ARG BASE=docker.io/library/debian:trixie-slim\n" in text
    assert re.search(
        r"^ARG BEAM_IMAGE=docker.io/apache/beam_python3.13_sdk:2\.\d+\.\d$", text, re.M
    )


def copied(package, tmp_path) -> set[str]:
    write(tmp_path / "context", "1.16", package)
    return files(tmp_path / "context" / "packages" / "1-mine")


CREDENTIALS = (".env", "my_package/.env.local", "deploy/server.pem", "credentials.json")
MINE = {"pyproject.toml", "my_package/__init__.py", "my_package/output/table.csv"}


@pytest.fixture
def package_with_credentials(package) -> Path:
    for name in CREDENTIALS:
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text("hush")
    return package


def test_only_files_that_git_tracks_are_copied(package_with_credentials, tmp_path, capsys):
    package = package_with_credentials
    (package / ".gitignore").write_text("secret.txt\n.venv\nbuild\n__pycache__\n")
    (package / "secret.txt").touch()
    (package / "new.py").touch()
    git = ["git", "-C", str(package)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", ".gitignore", *MINE], check=True)
    assert copied(package, tmp_path) == {*MINE, ".gitignore"}
    (line,) = capsys.readouterr().err.splitlines()
    assert all(name in line for name in (".env", "credentials.json", "git add"))
    assert "secret.txt" not in line


def test_without_git_files_named_like_credentials_are_left_out(
    package_with_credentials, tmp_path, capsys
):
    (package_with_credentials / "my_package" / "credentials.py").touch()
    assert copied(package_with_credentials, tmp_path) == {*MINE, "my_package/credentials.py"}
    (line,) = capsys.readouterr().err.splitlines()
    assert all(name in line for name in (*CREDENTIALS, "git add"))


def test_a_folder_that_cannot_be_built_is_rejected_with_a_fix(package):
    (package / "pyproject.toml").unlink()
    for folder, fix in {
        package: "Write a pyproject.toml there; three lines",
        package / "my_package": "Write a pyproject.toml in the folder above",
        package / "nowhere": "no such folder",
    }.items():
        with pytest.raises(ConfigError) as error:
            write(package / "context", "1.16", folder)
        assert f"--with {folder}: " in str(error.value)
        assert fix in str(error.value)


def test_a_wrong_name_ends_with_code_2_before_a_build(tools, capsys):
    program(tools, "buildah", '[ "$1" = info ] || { echo built; exit 0; }')
    for name in ("localhost/a", "EU.example:5000/a__b", "a_b.c"):
        assert main(["image", "build", f"--tag={name}:1.0-GPU", "--stack=1.16"]) == 0
    capsys.readouterr()
    for name in ("My Image:1", "a:", "a/B:1", "a//b:1", "a:1:2", "a@sha256:12", ""):
        assert main(["image", "build", "--stack=1.16", f"--tag={name}"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert repr(name) in printed.err
        assert "as in registry.example/my-pipeline:1.0" in printed.err


def test_builders_that_do_not_work_or_fail_are_named(tools, capfd):
    program(tools, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    with pytest.raises(ConfigError) as error:
        build._find_builder()
    message = str(error.value)
    assert "podman: not installed; docker: Cannot connect to the Docker daemon" in message
    assert "apt-get install -y buildah" in message
    failing = '[ "$1" = info ] || { echo "No solution found: needs keras<3"; exit 3; }'
    program(tools, "podman", failing)
    assert main(["image", "build", "--stack=1.16", "--tag=a:1"]) == 1
    printed = capfd.readouterr()
    assert printed.out == "TFX 1.16 with podman: a:1\nNo solution found: needs keras<3\n"
    assert "podman ended with code 3" in printed.err


def test_secrets_have_the_index_and_only_this_user_reads_them(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    certificates = tmp_path / "own.pem"
    certificates.touch()
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:pass word@packages.example/simple")
    monkeypatch.setenv("PIP_CERT", str(certificates))
    monkeypatch.setenv("UV_CACHE_DIR", "/of/this/machine")
    secrets = build.write_secrets(tmp_path)
    assert secrets == {"certificates": certificates, "settings": tmp_path / "settings"}
    assert secrets["settings"].stat().st_mode & 0o77 == 0
    assert "UV_CACHE_DIR" not in secrets["settings"].read_text()
    shown = subprocess.run(
        ["sh", "-c", f". {secrets['settings']}; echo $UV_DEFAULT_INDEX; echo $SSL_CERT_FILE"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown == "https://me:pass word@packages.example/simple\n/run/secrets/certificates\n"
    command = build._build_command("docker", tmp_path, ["a:1"], secrets, target="nodes")
    assert not [word for word in command if "packages.example" in word]


def test_the_cuda_lock_is_the_extra_of_tensorflow_and_not_in_the_image_lock():
    for stack in _STACKS.values():
        assert "\nnvidia-cudnn-cu12==" in stack.lock_file("cuda.txt").read_text()
        assert "\nnvidia-" not in stack.lock_file("image.txt").read_text()
    text = stack_named(None).lock_file("cuda.txt").read_text()
    pins = map(Requirement, re.findall(r"^(\S+==\S+) \\$", text, re.MULTILINE))
    locked = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}
    extra = [
        each
        for each in map(Requirement, metadata.requires("tensorflow") or ())
        if each.marker
        and "and-cuda" in str(each.marker)
        and each.marker.evaluate({"extra": "and-cuda"})
    ]
    assert locked.keys() == {each.name for each in extra}
    wrong = {each.name for each in extra if not each.specifier.contains(locked[each.name])}
    assert wrong == set(), "run `make lock`"


def test_cuda_is_a_layer_below_the_code(tmp_path):
    stack = _STACKS["1.16"]
    plain = write(tmp_path / "plain", "1.16")
    cuda = write(tmp_path / "cuda", "1.16", cuda=True)
    assert "cuda.txt" not in plain
    assert (tmp_path / "cuda" / "cuda.txt").read_bytes() == stack.lock_file("cuda.txt").read_bytes()
    assert not re.search(r"^ARG \w+$|[#] \[?cuda\]?$", cuda, re.MULTILINE)
    # The layers below the code are in this order, and those of both images are the same.
    order = ["uv pip sync", "--requirement cuda.txt", "ARG CODE="]
    places = [cuda.index(each) for each in order]
    assert places == sorted(places)
    dependencies = r"^ARG DEPENDENCIES=\w+$"
    assert re.findall(dependencies, cuda, re.M) == re.findall(dependencies, plain, re.M)


def test_cuda_defaults_to_the_accelerators_of_the_configuration(tmp_path):
    settings = {"image": "registry.example/x:1.0", "pipeline_root": "gs://bucket/root"}
    taxi = ["--config", str(ROOT / "examples" / "taxi" / "pipeline.yaml")]
    for accelerator, options, has_cuda in (
        ("NVIDIA_L4", [], True),
        ("NVIDIA_L4", ["--no-cuda", "--base", "nvidia/cuda:1"], False),
        ("amd.com/gpu", [], False),
        ("amd.com/gpu", ["--cuda"], True),
    ):
        folder = tmp_path / f"{accelerator}{len(options)}".replace("/", "-")
        given = {**settings, "resources.Trainer.accelerator": accelerator}
        command = ["image", "build", "--stack", "1.21", "--output", str(folder), *options, *taxi]
        command += [f"--set=cluster.vertex.{name}={value}" for name, value in given.items()]
        assert main(command) == 0
        text = (folder / "Containerfile").read_text()
        assert ("--requirement cuda.txt" in text) == has_cuda
        assert ("ARG BASE=nvidia/cuda:1\n" in text) == ("--base" in options)


def test_no_command_hides_a_failure_in_a_pipe_or_leaves_a_file_that_all_may_write(tmp_path):
    text = write(tmp_path / "context", "1.16", cuda=True)
    commands = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    assert not re.search(r"(?<!\|)\|(?!\|)", commands), "Debian's /bin/sh has no pipefail"
    assert not re.search(r"chmod\s+[0-7]?777|/gcs|/minio|/s3", commands)


def test_without_a_checkout_the_wheel_of_this_package_has_to_be_named(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_HAS_CHECKOUT", False)
    with pytest.raises(ConfigError, match=r"--with tfx_largebatch-VERSION-py3-none-any\.whl"):
        write(tmp_path / "without", "1.16")
    wheel = tmp_path / "tfx_largebatch-1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    write(tmp_path / "with", "1.16", wheel)
    assert files(tmp_path / "with" / "packages") == {wheel.name}
