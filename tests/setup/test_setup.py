"""`make setup` with a real network and a lock file of a few small packages."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from .conftest import Checkout

# What builds and installs the project itself, and one package to look at.
BUILDER = (
    *("editables", "hatch-fancy-pypi-readme", "hatchling", "packaging", "pathspec", "pluggy"),
    *("tomlkit", "trove-classifiers", "uv", "tomli", "typing-extensions"),
)


@pytest.fixture
def small(checkout: Checkout) -> Checkout:
    """A checkout whose lock files pin the builder and iniconfig only."""
    for lock in checkout.path.glob("requirements/*/lock.txt"):
        lines = lock.read_text().splitlines()
        kept = [line for line in lines if line.split("==")[0] in (*BUILDER, "iniconfig")]
        assert any(line.startswith("iniconfig==") for line in kept)
        lock.write_text("\n".join(kept) + "\n")
    return checkout


@pytest.fixture
def index():
    """Skips where no package index answers: these tests install."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    default = subprocess.check_output([sys.executable, "-c", code], text=True).strip()
    url = os.environ.get("PIP_INDEX_URL") or default
    try:
        urllib.request.urlopen(url, timeout=20).close()
    except urllib.error.HTTPError:
        pass
    except OSError as error:
        pytest.skip(f"{url} cannot be reached: {error}")


def python_prints(checkout: Checkout, code: str) -> str:
    command = [str(checkout.venv / "bin" / "python"), "-c", code]
    # Not in the checkout's folder: an import has to come from what was installed.
    # Nor from the path that a pipeline in this process set for its children.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.check_output(command, text=True, cwd=checkout.path.parent, env=env).strip()


def change_locks(checkout: Checkout, pattern: str, replacement: str) -> None:
    for lock in checkout.path.glob("requirements/*/lock.txt"):
        lock.write_text(re.sub(pattern, replacement, lock.read_text(), flags=re.MULTILINE))


def installed(checkout: Checkout) -> set[str]:
    code = "import importlib.metadata as m; print(*(d.name.lower() for d in m.distributions()))"
    return set(python_prints(checkout, code).split())


@pytest.mark.install
@pytest.mark.usefixtures("index")
def test_installs_does_nothing_follows_the_lock(small, own_environment):
    done = small.make("setup", own_environment)
    assert done.returncode == 0, done.stderr
    assert python_prints(small, "import iniconfig, pipeline; print(pipeline.__file__)") == str(
        small.path / "pipeline" / "__init__.py"
    )
    compiled = small.venv.glob("lib/python*/site-packages/pluggy/__pycache__/*.pyc")
    assert list(compiled), "not byte-compiled"
    assert "uv" in installed(small)

    # Nothing to do: says nothing, touches nothing; no PYTHON is needed, .venv knows its own.
    stamp = small.venv / "setup-complete"
    before = stamp.stat().st_mtime_ns
    without_python = {k: v for k, v in own_environment.items() if k != "PYTHON"}
    done = small.make("setup", without_python)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stamp.stat().st_mtime_ns == before

    # The lock file changes: .venv follows it exactly.
    change_locks(small, r"^iniconfig==.*\n", "")
    done = small.make("setup", without_python)
    assert done.returncode == 0, done.stderr
    assert "iniconfig" not in installed(small)
    assert "uv" in installed(small)

    # pyproject.toml changes, without a network.
    with (small.path / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    offline = {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    done = small.make("setup", without_python | offline)
    assert done.returncode == 0, done.stderr
    assert stamp.stat().st_mtime_ns != before

    # The checkout moves: scripts in .venv/bin would name the old folder.
    moved = Checkout(small.path.rename(small.path.with_name("moved")))
    done = moved.make("setup", without_python)
    assert done.returncode == 0, done.stderr
    assert python_prints(moved, "import pipeline; print(pipeline.__file__)").startswith(
        str(moved.path)
    )
    assert str(moved.path) in (moved.venv / "bin" / "hatchling").read_text()


@pytest.mark.install
@pytest.mark.usefixtures("index")
def test_an_interrupted_setup_is_finished_by_the_next(small, own_environment):
    """Killed without warning as soon as a file of .venv appears, each time a later one."""
    # Without PYTHON, the one of the broken .venv is found through its link.
    without_python = {k: v for k, v in own_environment.items() if k != "PYTHON"}
    environment = own_environment
    for moment in ("bin/python", "bin/hatchling"):
        process = subprocess.Popen(
            ["make", "setup"],
            cwd=small.path,
            env=environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (small.venv / moment).exists() and process.poll() is None:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert (small.venv / moment).exists(), moment
        assert not (small.venv / "setup-complete").exists()
        environment = without_python

    done = small.make("setup", without_python)
    assert done.returncode == 0, done.stderr
    assert python_prints(small, "import iniconfig, pipeline; print('both')") == "both"
    assert (small.venv / "setup-complete").exists()


@pytest.mark.install
def test_no_network(small, own_environment):
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1"}
    done = small.make("setup", own_environment | unreachable)
    assert done.returncode != 0
    assert "Connection refused" in done.stderr  # pip's reason
    assert "PIP_INDEX_URL=https://... make setup" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (small.venv / "setup-complete").exists()


@pytest.mark.install
@pytest.mark.usefixtures("index")
def test_a_package_that_cannot_be_had(small, own_environment):
    """The installer's reason is shown."""
    change_locks(small, r"^iniconfig==\S+", "iniconfig==0.0.999")
    done = small.make("setup", own_environment)
    assert done.returncode != 0
    assert "there is no version of iniconfig" in done.stderr
    assert "make setup: not installed; the reason is above" in done.stderr
    assert not (small.venv / "setup-complete").exists()
