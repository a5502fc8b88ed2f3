"""Build an image of each stack, on its Debian, with a user package, and run commands in it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import ROOT

SUITES = {"1.16": "bookworm", "1.21": "trixie"}
PACKAGE = "taxi_package"
BEYOND = "humanize"
"""A requirement of the user's package that no lock file has."""

SLEEPER = '''
"""An executor that prints when it runs, and then waits for a signal."""

import time

from tfx.dsl.components.base.base_executor import BaseExecutor


class Executor(BaseExecutor):
    def Do(self, input_dict, output_dict, exec_properties):
        print("at work", flush=True)
        time.sleep(600)
'''


@dataclass(frozen=True)
class Image:
    """An image, and the output of the command that built it."""

    stack: str
    name: str
    printed: str
    package: Path

    @contextmanager
    def container(self) -> Iterator[str]:
        """Yield the name of a container, which is removed afterwards."""
        command = ["buildah", "from", "--pull=never", self.name]
        name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        try:
            yield name
        finally:
            subprocess.run(["buildah", "rm", name], check=True, stdout=subprocess.DEVNULL)

    def run(self, *words: str, write: Sequence[Path] = (), read: Sequence[Path] = ()) -> str:
        """Run a command as the user of nodes, with these folders mounted at their places."""
        options = ["--isolation=chroot", "--network=host", "--user=1000:0"]
        options += [f"--volume={folder}:{folder}" for folder in write]
        options += [f"--volume={path}:{path}:ro" for path in read]
        for folder in write:
            folder.chmod(0o777)
        with self.container() as container:
            done = subprocess.run(
                ["buildah", "run", *options, container, "--", *words],
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python(self, program: str) -> dict:
        """Run a Python program and return the JSON on the last line of its output."""
        return json.loads(self.run("python", "-c", program).splitlines()[-1])


def base_of(stack: str) -> str:
    return f"localhost/debian-base:{SUITES[stack]}"


@pytest.fixture(scope="session")
def user_package(tmp_path_factory) -> Path:
    """Return a package of the taxi example's functions, as a user would have it."""
    folder = tmp_path_factory.mktemp("user") / "my taxi"  # the space must survive quoting
    code = folder / PACKAGE
    code.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "taxi" / "features.py", code)
    (code / "__init__.py").touch()
    (code / "sleeper.py").write_text(SLEEPER)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{PACKAGE}"\nversion = "1.0"\ndependencies = ["{BEYOND}"]\n'
    )
    (folder / ".venv").mkdir()
    (folder / ".venv" / "ignored").touch()
    return folder


@pytest.fixture(scope="session", params=SUITES)
def image(request, user_package) -> Image:
    stack = request.param
    suite = SUITES[stack]
    subprocess.run(["sh", str(ROOT / "scripts" / "debian_base.sh"), suite], check=True)
    name = f"localhost/tfx-largebatch-test:{stack}"
    command = [sys.executable, "-m", "pipeline", "image", "build", "--stack", stack]
    command += ["--tag", name, "--with", str(user_package)]
    command += ["--base", base_of(stack)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Image(stack, name, done.stdout, user_package)
