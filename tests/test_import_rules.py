"""Who may import whom (docs/design.md §2), read from the import graph of the sources.

The graph holds imports inside functions and under TYPE_CHECKING too: a package that needs another
package's types knows it.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]

# An arrow is "imports"; nothing else is allowed.
ARROWS = {
    "pipeline": {"components", "transform", "trainer_module", "shared_core"},
    "components": {"trainer_module", "shared_core"},
    "transform": {"shared_core"},
    "trainer_module": {"shared_core"},
    "shared_core": set(),
}
# The rooms and the modules beside them, from the top floor to the ground: each may import what is
# below it, never the other way. `__init__` of a package is its table of contents, and may name all.
FLOORS = {
    "pipeline": (
        *("__main__", "local_runner", "cli"),
        *("serving", "replay", "image", "targets", "platforms", "run"),
        *("preflight", "page", "features", "tracking", "report"),
        "graph",
        *("data", "config", "engines", "common"),
    ),
    "transform": (
        *("preprocessing", "chains", "resolve", "encode", "columns", "spec"),
        *("scale", "analyzers", "block", "compat"),
    ),
    "trainer_module": (
        *("tfx", "training", "tuning", "memory", "profiling", "loop", "baselines", "model", "data"),
        *("stages", "parameter_server", "step", "gradients", "window", "checks", "losses"),
        *("config", "launch", "options", "devices", "common"),
    ),
}
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
# Not part of the library: no package may rest on them.
OUTSIDE = ("examples", "benchmarks", "tests")

# Where a plain TensorFlow user never comes: what TFX's Trainer and Tuner call, and the export.
TFX_PART_OF_TRAINER = ("trainer_module.tfx",)
TFX_FAMILY = (
    "tfx",
    "tfx_bsl",
    "tensorflow_transform",
    "tensorflow_data_validation",
    "tensorflow_model_analysis",
    "apache_beam",
    "ml_metadata",
    "kfp",
)
# TFX's public front door brings Google Cloud's clients in, 3 seconds of every start: nobody.
FRONT_DOOR = ("tfx.v1",)
# TFX's modules for graphs and their nodes: pipeline and components only.
DSL = ("tfx.dsl", "tfx.orchestration", "tfx.v1.dsl", "tfx.v1.orchestration", "tfx.v1.components")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*ARROWS, include_external_packages=True, cache_dir=None)


def package(module: str) -> str:
    return module.partition(".")[0]


def room(module: str) -> str:
    """`step` of `trainer_module.step.train_step`; "" of the package itself."""
    return module.partition(".")[2].partition(".")[0]


def is_within(module: str, parents: tuple[str, ...]) -> bool:
    return any(module == parent or module.startswith(f"{parent}.") for parent in parents)


def forbidden_imports(graph: grimp.ImportGraph) -> list[str]:
    """One line per import that breaks a rule: who, whom, where."""
    found = []
    for importer in sorted(m for m in graph.modules if package(m) in ARROWS):
        own = package(importer)
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            other = package(imported)
            details = graph.get_import_details(importer=importer, imported=imported)
            lines = [detail["line_contents"] for detail in details]
            broken = (
                (other in ARROWS and other != own and other not in ARROWS[own])
                or other in OUTSIDE
                or (own == "transform" and other == "tfx")
                or (
                    own == "trainer_module"
                    and other in TFX_FAMILY
                    and not is_within(importer, TFX_PART_OF_TRAINER)
                )
                or (own == "trainer_module" and any(names(DSL, line) for line in lines))
                or any(names(FRONT_DOOR, line) for line in lines)
                or (other == own and goes_up(importer, imported))
            )
            if broken:
                found += [
                    f"{importer}:{d['line_number']} imports {imported}: {d['line_contents']}"
                    for d in details
                ]
    return found


def goes_up(importer: str, imported: str) -> bool:
    """Whether an import within a package reaches a floor above its own."""
    floors = FLOORS.get(package(importer))
    if floors is None or not room(importer):
        return False
    return not room(imported) or floors.index(room(imported)) < floors.index(room(importer))


def names(modules: tuple[str, ...], line: str) -> bool:
    """Whether an import statement reaches into the modules (grimp knows external packages whole).

    `from tfx import dsl, types` names tfx.dsl and tfx.types.
    """
    source, _, taken = line.removeprefix("from ").removeprefix("import ").partition(" import ")
    imported = [source, *(f"{source}.{name.split()[0]}" for name in taken.split(",") if name)]
    return any(is_within(name, modules) for name in imported)


def test_every_import_follows_an_arrow(graph: grimp.ImportGraph):
    assert forbidden_imports(graph) == []


def test_every_room_has_a_floor_and_says_what_lives_there(graph: grimp.ImportGraph):
    for name, floors in FLOORS.items():
        rooms = {room(module) for module in graph.modules if package(module) == name} - {""}
        assert rooms == set(floors)
        picture = DESIGN.partition(f"\n{name}  ")[2].partition("\n\n")[0].partition("\n```")[0]
        lines = [line.strip().partition("   ")[0] for line in picture.splitlines()]
        shown = [each for line in lines for each in line.split()]
        assert shown == [each for each in floors if "runner" not in each and each != "__main__"]
        for each in rooms:
            init = ROOT / name / each / "__init__.py"
            if init.parent.is_dir():
                body = ast.parse(init.read_text(encoding="utf-8")).body
                assert len(body) == 1, f"{init}: one docstring"
                assert ast.get_docstring(ast.Module(body, [])), init


# Leaves: nothing imports them but the place that builds them by name.
LEAVES = {
    "parameter_server": "trainer_module.training.train",
    "stages": "trainer_module.model.plan",
}


def test_only_the_builder_knows_parameter_servers_and_stages(graph: grimp.ImportGraph):
    for leaf, builder in LEAVES.items():
        package = f"trainer_module.{leaf}"
        inside = {package, *graph.find_descendants(package)}
        importers = {
            importer
            for module in inside
            for importer in graph.find_modules_that_directly_import(module)
        }
        assert importers - inside == {builder}, leaf


def test_no_circle_of_modules(graph: grimp.ImportGraph):
    """Neither among rooms, which the floors forbid, nor among the modules of one room."""
    below = {
        module: [m for m in graph.find_modules_directly_imported_by(module) if m in graph.modules]
        for module in graph.modules
        if package(module) in FLOORS and room(module)
    }
    try:
        tuple(graphlib.TopologicalSorter(below).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


# Who imports whom, and the statement.
BROKEN = """
transform.scale.scaler > transform.encode.table > from transform.encode import table
transform.spec.features > transform > import transform
transform > tfx > from tfx import v1
pipeline.graph.build > tfx > from tfx import components, v1 as tfx
components.trainer.component > tfx > import tfx.v1.dsl
trainer_module.window.accumulation > tfx_bsl > from tfx_bsl.public import tfxio
trainer_module.window.update > trainer_module.stages.plan > from trainer_module.stages import plan
trainer_module.step.train_step > tensorflow_transform > import tensorflow_transform as tft
trainer_module.tfx.export > tfx > from tfx import dsl
trainer_module.tfx.export > tfx > from tfx.v1 import dsl, types
trainer_module.tfx.export > tfx > from tfx.dsl.components.base import base_node
"""
BROKEN += "".join(
    f"{own} > {other} > import {other}\n"
    for own, allowed in ARROWS.items()
    for other in [*ARROWS, "examples"]
    if other != own and other not in allowed
)


def test_a_broken_arrow_is_found(graph: grimp.ImportGraph):
    before = set(forbidden_imports(graph))
    changed = grimp.build_graph(*ARROWS, include_external_packages=True, cache_dir=None)
    for importer, imported, line in (each.split(" > ") for each in BROKEN.strip().splitlines()):
        # Its own imports say nothing of a module that is there already.
        new = importer if is_within(importer, TFX_PART_OF_TRAINER) else f"{importer}.added_by_test"
        for module in {new, imported} - changed.modules:
            changed.add_module(module)
        changed.add_import(importer=new, imported=imported, line_number=7, line_contents=line)
        added = set(forbidden_imports(changed)) - before
        assert added == {f"{new}:7 imports {imported}: {line}"}
        changed.remove_import(importer=new, imported=imported)


def test_an_import_inside_a_function_is_found(tmp_path, monkeypatch):
    """The graph that the rule is read from, on sources that hide their imports."""
    for name, source in {
        "upper_room": "def late():\n    from lower_room import thing\n    return thing\n",
        "lower_room": "thing = 1\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    hidden = grimp.build_graph("upper_room", "lower_room", cache_dir=None)
    assert hidden.find_modules_directly_imported_by("upper_room") == {"lower_room"}


def test_import_needs_no_tfx():
    """A plain TensorFlow user, and `python -m pipeline --help`, must not wait for TFX."""
    packages = "trainer_module, transform, shared_core"
    code = f"import sys, {packages}; print(*sorted(set(sys.modules) & set({TFX_FAMILY!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
