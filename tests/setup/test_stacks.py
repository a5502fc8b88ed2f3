"""The two stacks: which machine gets which, and that a lock file holds all that it has to."""

from __future__ import annotations

import sys

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from .conftest import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCK_PYTHONS = [("1.16", "3.10"), ("1.16", "3.11")]
LOCK_PYTHONS += [("1.21", "3.11"), ("1.21", "3.12"), ("1.21", "3.13")]


# TFX -> the oldest glibc of its wheels.
GLIBC = {"1.21": 39, "1.16": 28}


def pythons_of(stack: str) -> SpecifierSet:
    path = ROOT / "requirements" / f"stack-{stack}" / "pyproject.toml"
    return SpecifierSet(tomllib.loads(path.read_text())["project"]["requires-python"])


@pytest.mark.parametrize("glibc", [36, 39])
def test_choice(checkout, machine, glibc):
    """The newest stack whose own pyproject.toml allows the Python; Debian 12 has glibc 2.36."""
    machine.script("getconf", f"echo glibc 2.{glibc}")
    for minor in (9, 10, 11, 12, 13, 14):
        name = f"python3.{minor}"
        version = f"import sys\nsys.version_info = (3, {minor}, 2, 'final', 0)\n"
        machine.python(name, at_start=version)
        message = checkout.refusal(machine.environment | {"PYTHON": name})
        fitting = (stack for stack, oldest in GLIBC.items() if glibc >= oldest)
        wanted = next((stack for stack in fitting if f"3.{minor}" in pythons_of(stack)), None)
        if wanted is None:
            assert f"PYTHON={name}" in message
            assert f"With glibc 2.{glibc}" in message
        else:
            assert f"for TFX {wanted};" in message


def test_stacks_agree_with_the_project():
    """Each supported Python has a stack, and each stack's Pythons are the project's."""
    minors = [f"3.{minor}" for minor in range(6, 20)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = SpecifierSet(project["requires-python"])
    supported = {v for v in minors for stack in GLIBC if v in pythons_of(stack)}
    assert supported == {v for v in minors if v in allowed}


@pytest.mark.parametrize(("stack", "python"), LOCK_PYTHONS)
def test_lock_pins_everything_that_is_declared(stack: str, python: str):
    machine = {"python_version": python, "python_full_version": f"{python}.5"}
    machine |= {"sys_platform": "linux", "platform_machine": "x86_64", "extra": ""}
    pins = {}
    for line in (ROOT / "requirements" / f"stack-{stack}" / "lock.txt").read_text().splitlines():
        if "==" in line and not line.lstrip().startswith("#"):
            pin = Requirement(line)
            if pin.marker is None or pin.marker.evaluate(machine):
                assert pin.name not in pins, f"{pin.name} is pinned twice for Python {python}"
                pins[pin.name] = str(pin.specifier).removeprefix("==")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for declared in (Requirement(line) for group in groups for line in group):
        if declared.name == project["name"]:  # an extra that is part of another
            continue
        if declared.marker is not None and not declared.marker.evaluate(machine):
            continue  # there is none for this Python
        assert declared.name in pins, f"run `make lock`: {declared} is not in stack-{stack}"
        assert declared.specifier.contains(pins[declared.name], prereleases=True), declared
    # What tfx's own metadata leaves out, and imports fail without.
    assert {"dill", "setuptools", "tensorboard", "kfp", "uv"} <= set(pins)
