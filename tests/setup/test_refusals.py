"""On a machine that lacks something, `make setup` says what, and the command that brings it."""

from __future__ import annotations

import sys

import pytest

# What Debian's python3 is without its package python3-venv.
WITHOUT_ENSUREPIP = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "ensurepip" else found(name)
"""

# What it is without python3-dev.
WITHOUT_HEADERS = """
import sysconfig
path = sysconfig.get_path
sysconfig.get_path = lambda name, *more: "/absent" if name == "include" else path(name, *more)
"""


def of_version(major: int, minor: int) -> str:
    return f"import sys\nsys.version_info = ({major}, {minor}, 2, 'final', 0)\n"


@pytest.fixture
def compiler(machine):
    """A C++ compiler and headers, so that only what a test takes away is missing."""
    machine.script("c++", "cat >/dev/null")


def test_no_python(checkout, machine):
    message = checkout.refusal(machine.environment)
    assert "lacks a python3" in message
    assert "apt-get install -y python3 python3-venv python3-dev g++`" in message


def test_named_python_does_not_exist(checkout, machine):
    message = checkout.refusal(machine.environment | {"PYTHON": "python3.99"})
    assert "PYTHON=python3.99, none runs" in message
    assert "Python 3.10 or 3.11" in message
    assert "make setup PYTHON=python3.11" in message


@pytest.mark.parametrize(
    ("version", "glibc"), [((3, 9), "2.36"), ((3, 14), "2.41"), ((3, 12), "2.36")]
)
def test_unsupported_python(checkout, machine, version, glibc):
    machine.python(at_start=of_version(*version))
    machine.glibc(f"glibc {glibc}")
    message = checkout.refusal(machine.environment)
    assert f"python3 is {version[0]}.{version[1]}" in message
    assert f"With glibc {glibc}" in message
    assert "TFX 1.16 Python 3.10 or 3.11" in message
    assert "uv python find 3.11" in message


def test_unsupported_python_gives_way_to_a_supported_one(checkout, machine):
    """python3 is too old, python3.X beside it is not: the next thing missing is the compiler."""
    machine.python("python3", at_start=of_version(3, 9))
    machine.python(f"python3.{sys.version_info.minor}")
    assert "lacks a C++ compiler" in checkout.refusal(machine.environment)


def test_broken_python_gives_way_to_a_working_one(checkout, machine):
    machine.script("python3", "exit 127")
    machine.python(f"python3.{sys.version_info.minor}")
    assert "lacks a C++ compiler" in checkout.refusal(machine.environment)


def test_named_python_is_not_replaced_by_another(checkout, machine):
    machine.python("python3", at_start=of_version(3, 9))
    machine.python(f"python3.{sys.version_info.minor}")
    message = checkout.refusal(machine.environment | {"PYTHON": "python3"})
    assert "PYTHON=python3, python3 is 3.9" in message


@pytest.mark.parametrize(
    ("answer", "found"), [("glibc 2.17", "2.17"), ("undefined", "none"), ("", "none")]
)
def test_old_glibc_or_none(checkout, machine, answer, found):
    """Musl's getconf knows no GNU_LIBC_VERSION."""
    machine.python()
    machine.glibc(answer)
    message = checkout.refusal(machine.environment)
    assert f"glibc {found} on x86_64" in message
    assert "glibc 2.28" in message
    assert "docker run" in message


def test_another_processor(checkout, machine):
    machine.python()
    (machine.bin / "uname").unlink()
    machine.script("uname", "echo aarch64")
    message = checkout.refusal(machine.environment)
    assert "on aarch64" in message
    assert "docker run" in message


def test_linked_venv_is_kept(checkout, machine, compiler, tmp_path):
    machine.python()
    (tmp_path / "other" / "bin").mkdir(parents=True)
    checkout.venv.symlink_to(tmp_path / "other")
    done = checkout.make("setup", machine.environment)
    assert done.returncode != 0
    assert ".venv is a link" in done.stderr
    assert (tmp_path / "other" / "bin").exists()


def test_a_refused_setup_keeps_the_venv(checkout, machine):
    """One of another Python, that somebody may still want."""
    machine.python(f"python3.{sys.version_info.minor}")
    checkout.venv.mkdir()
    stamp = checkout.venv / "setup-complete"
    stamp.write_text(f"3.9 {checkout.path} inputs\n")
    done = checkout.make("setup", machine.environment)
    assert "lacks a C++ compiler" in done.stderr
    assert stamp.exists()


@pytest.mark.usefixtures("compiler")
def test_bare_debian_python(checkout, machine):
    machine.python(at_start=WITHOUT_ENSUREPIP)
    message = checkout.refusal(machine.environment)
    assert "venv and ensurepip" in message
    assert "apt-get install -y python3" in message
    assert "-venv" in message
    assert "compiler" not in message


def test_no_compiler(checkout, machine):
    machine.python()
    message = checkout.refusal(machine.environment)
    assert "a C++ compiler (to build pyfarmhash, which has no wheel)" in message
    assert "apt-get install -y g++`" in message


def test_c_compiler_without_cpp(checkout, machine):
    """Debian's gcc package alone: the driver is there, cc1plus is not."""
    machine.script("g++", "echo \"g++: fatal error: cannot execute 'cc1plus'\" >&2; exit 1")
    machine.python()
    message = checkout.refusal(machine.environment | {"CXX": "g++"})
    assert "a C++ compiler" in message


@pytest.mark.usefixtures("compiler")
def test_no_python_headers(checkout, machine):
    machine.python(at_start=WITHOUT_HEADERS)
    message = checkout.refusal(machine.environment)
    assert "Python.h" in message
    assert "-dev`" in message
    assert "compiler" not in message


def test_all_that_is_missing_is_named_at_once(checkout, machine):
    machine.python(at_start=WITHOUT_ENSUREPIP)
    message = checkout.refusal(machine.environment)
    assert "-venv g++`" in message


def test_dnf_machines_get_their_own_names(checkout, machine):
    machine.script("dnf", "exit 1")
    machine.python()
    assert "dnf install -y gcc-c++`" in checkout.refusal(machine.environment)
