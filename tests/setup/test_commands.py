"""`make help`, `.ci/run` and the pre-commit hooks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import yaml

from .conftest import ROOT

TARGETS = {
    *("help", "setup", "run", "test", "test-fast", "test-flink", "test-gpu", "test-distributed"),
    *("test-cluster", "test-image", "test-browser", "test-mlflow", "test-install", "test-1.21"),
    *("test-pipelines", "golden", "lint", "docs", "bench", "lock", "clean"),
}


def test_help_lists_every_target(checkout, own_environment):
    done = checkout.make("help", own_environment)
    listed = set(re.findall(r"^  make ([a-z0-9.-]+) +\S", done.stdout, re.MULTILINE))
    assert listed == TARGETS
    assert not checkout.venv.exists()  # help installs nothing


def test_hooks_fetch_nothing():
    """Every hook is a tool of .venv, so that a clone without GitHub can commit."""
    path = ROOT / ".pre-commit-config.yaml"
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(path)]
    subprocess.run(command, check=True)
    for repository in yaml.safe_load(path.read_text())["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert hook["language"] == "system"
            assert hook["entry"].startswith(".venv/bin/")


def test_ci_runs_all_and_fails_with_any(checkout, machine, own_environment):
    shutil.copytree(ROOT / ".ci", checkout.path / ".ci")
    log = checkout.path / "log"
    environment = own_environment | {"PATH": f"{machine.bin}{os.pathsep}{own_environment['PATH']}"}
    suites = [
        *("docs", "lint", "test-1.21", "test-browser", "test-cluster", "test-distributed"),
        *("test-flink", "test-image", "test-install", "test-mlflow", "test-pipelines"),
    ]
    for failing, status in {**dict.fromkeys(["test", *suites], 1), "none": 0}.items():
        log.unlink(missing_ok=True)
        machine.script(
            "make", f'echo "$1 CI=$CI" >> "{log}"; echo "output of $1"; [ "$1" != {failing} ]'
        )
        done = subprocess.run(
            ["bash", ".ci/run"], cwd=checkout.path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == status, done.stderr
        first, *others = log.read_text().splitlines()
        assert first == "test CI=true"
        assert sorted(others) == [f"{suite} CI=true" for suite in suites]
        printed = [line for line in done.stdout.splitlines() if not line.startswith(".ci/run: ")]
        assert sorted(printed) == sorted(f"output of {target}" for target in ["test", *suites])
        assert (f"failed: make {failing}\n" in done.stderr) == bool(status)
