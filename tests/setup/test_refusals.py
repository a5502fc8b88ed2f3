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
PYTHON_3_9 = "import sys\nsys.version_info = (3, 9, 2, 'final', 0)\n"
NEWEST = f"python3.{sys.version_info.minor}"
WITH_CPP, GCC_ALONE = "cat >/dev/null", "echo \"g++: cannot execute 'cc1plus'\" >&2; exit 1"
NO_COMPILER = "lacks a C++ compiler (to build pyfarmhash, which has no wheel)"

# Of each machine: the Pythons on PATH with what runs when they start (None: it is broken), programs
# beside them, variables, and words of the message.
MACHINES = {
    "no Python": (
        {}, {}, {},
        ["lacks a python3", "apt-get install -y python3 python3-venv python3-dev g++`"],
    ),
    "a named Python that does not exist": (
        {}, {}, {"PYTHON": "python3.99"},
        ["PYTHON=python3.99, none runs", "Python 3.10 or 3.11", "make setup PYTHON=python3.11"],
    ),
    "a named Python is not replaced by another": (
        {"python3": PYTHON_3_9, NEWEST: ""}, {}, {"PYTHON": "python3"},
        ["PYTHON=python3, python3 is 3.9"],
    ),
    "an unsupported Python": (
        {"python3": PYTHON_3_9}, {}, {},
        ["Python, python3 is 3.9. ", "TFX 1.16 Python 3.10 or 3.11", "uv python find 3.11"],
    ),
    "a supported Python beside an unsupported one": (
        {"python3": PYTHON_3_9, NEWEST: ""}, {}, {}, [NO_COMPILER],
    ),
    "a working Python beside a broken one": (
        {"python3": None, NEWEST: ""}, {}, {}, [NO_COMPILER],
    ),
    "glibc 2.17": (
        {"python3": ""}, {"getconf": "echo glibc 2.17"}, {},
        ["glibc 2.17 on x86_64", "glibc 2.28", "docker run"],
    ),
    "musl, which has no GNU_LIBC_VERSION": (
        {"python3": ""}, {"getconf": "echo undefined"}, {},
        ["glibc none on x86_64", "glibc 2.28", "docker run"],
    ),
    "no getconf": ({"python3": ""}, {"getconf": "echo"}, {}, ["glibc none on x86_64"]),
    "another processor": (
        {"python3": ""}, {"uname": "echo aarch64"}, {}, ["on aarch64", "docker run"],
    ),
    "no ensurepip": (
        {"python3": WITHOUT_ENSUREPIP}, {"c++": WITH_CPP}, {},
        ["lacks Python's venv and ensurepip for TFX", "apt-get install -y python3", "-venv`"],
    ),
    "no headers": (
        {"python3": WITHOUT_HEADERS}, {"c++": WITH_CPP}, {}, ["lacks Python.h (", "-dev`"],
    ),
    "no compiler": ({"python3": ""}, {}, {}, [NO_COMPILER, "apt-get install -y g++`"]),
    "gcc without g++": ({"python3": ""}, {"g++": GCC_ALONE}, {"CXX": "g++"}, [NO_COMPILER]),
    "neither ensurepip nor a compiler": ({"python3": WITHOUT_ENSUREPIP}, {}, {}, ["-venv g++`"]),
    "Fedora without a compiler": (
        {"python3": ""}, {"dnf": "exit 1"}, {}, ["dnf install -y gcc-c++`"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_missing_is_named_with_the_command_that_brings_it(checkout, machine, name):
    pythons, programs, variables, words = MACHINES[name]
    for python, at_start in pythons.items():
        if at_start is None:
            machine.script(python, "exit 127")
        else:
            machine.python(python, at_start=at_start)
    for program, text in programs.items():
        machine.script(program, text)
    message = checkout.refusal(machine.environment | variables)
    assert [each for each in words if each not in message] == [], message


def test_linked_venv_is_kept(checkout, machine, tmp_path):
    machine.script("c++", WITH_CPP)
    machine.python()
    (tmp_path / "other" / "bin").mkdir(parents=True)
    checkout.venv.symlink_to(tmp_path / "other")
    done = checkout.make("setup", machine.environment)
    assert done.returncode != 0
    assert ".venv is a link" in done.stderr
    assert (tmp_path / "other" / "bin").exists()


def test_a_refused_setup_keeps_the_venv(checkout, machine):
    """One of another Python, that somebody may still want."""
    machine.python(NEWEST)
    checkout.venv.mkdir()
    stamp = checkout.venv / "setup-complete"
    stamp.write_text(f"3.9 {checkout.path} inputs\n")
    done = checkout.make("setup", machine.environment)
    assert NO_COMPILER in done.stderr
    assert stamp.exists()
