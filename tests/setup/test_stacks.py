"""The two stacks: which machine gets which, and that a lock file holds all that it has to."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

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


@pytest.fixture(scope="module")
def setup_environment() -> ModuleType:
    path = ROOT / "scripts" / "setup_environment.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("python", "glibc", "stack"),
    [
        ((3, 9), (2, 36), None),
        ((3, 10), (2, 27), None),
        ((3, 10), (2, 28), "1.16"),
        ((3, 10), (2, 41), "1.16"),
        ((3, 11), (2, 36), "1.16"),  # Debian 12
        ((3, 11), (2, 38), "1.16"),
        ((3, 11), (2, 39), "1.21"),  # both fit: the newer one
        ((3, 12), (2, 36), None),
        ((3, 12), (2, 39), "1.21"),  # Ubuntu 24.04
        ((3, 13), (2, 41), "1.21"),  # Debian 13
        ((3, 14), (2, 41), None),
    ],
)
def test_choice(setup_environment, python, glibc, stack):
    chosen = setup_environment.choose_stack(python, glibc)
    assert (chosen and chosen.name) == stack


def test_stacks_agree_with_what_is_locked(setup_environment):
    """The table in the script, the stacks' own pyproject.toml, and the project's."""
    minors = [(3, minor) for minor in range(6, 20)]
    supported = set()
    for stack in setup_environment.STACKS:
        project = tomllib.loads((stack.lock.parent / "pyproject.toml").read_text())["project"]
        allowed = SpecifierSet(project["requires-python"])
        assert stack.pythons == [v for v in minors if f"{v[0]}.{v[1]}" in allowed]
        supported.update(stack.pythons)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = SpecifierSet(project["requires-python"])
    assert sorted(supported) == [v for v in minors if f"{v[0]}.{v[1]}" in allowed]


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
