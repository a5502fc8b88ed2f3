"""The fingerprint that lets TFX's cache see an edited function."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.common.fingerprint import fingerprint
from pipeline.config.config_file import load_config
from pipeline.graph.nodes import _trainer_code, _transform_config

# The modules behind the functions of a pipeline, each reached in another way.
SOURCES = {
    "fingered/__init__.py": "",
    "fingered/derive.py": "from .rates import RATE\ndef columns(inputs): return {}\n",
    "fingered/rates.py": "def late():\n    import fingered_third\nRATE = 1\n",
    "fingered_third.py": "VALUE = 1\n",
    "fingered/models.py": "from fingered import layers\ndef model_fn(context): ...\n",
    "fingered/layers.py": "SIZE = 1\n",
    "fingered/losses.py": "import fingered_maths as m\ndef loss(labels, outputs): ...\n",
    "fingered_maths.py": "EPSILON = 1\n",
    "fingered/metrics.py": "from ._parts.mean import *\ndef metric(labels, outputs): ...\n",
    "fingered/_parts/__init__.py": "",
    "fingered/_parts/mean.py": "AXIS = 1\n",
    "fingered/unused.py": "OTHER = 1\n",
}
TRANSFORM = ["fingered/derive.py", "fingered/rates.py", "fingered_third.py"]
TRAINER = [
    "fingered/models.py",
    "fingered/layers.py",
    "fingered/losses.py",
    "fingered_maths.py",
    "fingered/metrics.py",
    "fingered/_parts/mean.py",
]


@pytest.fixture
def sources(tmp_path, monkeypatch) -> Path:
    """The user's modules, on the Python path."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


@pytest.mark.parametrize("file", [*TRANSFORM, *TRAINER, "fingered/unused.py"])
def test_an_edit_anywhere_behind_a_function_is_seen_by_its_node(sources, write, file):
    training = {
        "model_fn": "fingered.models.model_fn",
        "loss": "fingered.losses.loss",
        "metrics": ["auc", "fingered.metrics.metric"],
        "epochs": 1,
    }

    def change(raw):
        raw["features"]["derive"] = "fingered.derive.columns"
        raw["training"] = training

    config = load_config(write(change))
    transform, trainer = _transform_config(config)["code"], _trainer_code(config)
    assert (transform, trainer) == (_transform_config(config)["code"], _trainer_code(config))
    with (sources / file).open("a") as source:
        source.write("EDITED = 2\n")
    assert (_transform_config(config)["code"] != transform) == (file in TRANSFORM)
    assert (_trainer_code(config) != trainer) == (file in TRAINER)


@pytest.mark.parametrize("name", ["loaded_by_name.py", "templates/page.html.jinja"])
def test_an_edit_of_our_own_package_counts(tmp_path, monkeypatch, name):
    package = tmp_path / "fingered_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    before = fingerprint(["fingered_package"])
    (package / name).write_text("VALUE = 2\n")
    assert fingerprint(["fingered_package"]) != before


def test_the_order_of_functions_does_not_matter(sources):
    names = ["fingered.derive.columns", "fingered.models.model_fn"]
    assert fingerprint(["transform"], names) == fingerprint(["transform"], names[::-1])


def test_a_module_that_cannot_be_found_is_named():
    with pytest.raises(ConfigError, match="cannot find the Python module 'no_such_module'"):
        fingerprint(["transform"], ["no_such_module.function"])


def test_a_module_that_python_cannot_read_is_named(sources):
    (sources / "fingered_third.py").write_text("def (:\n")
    with pytest.raises(
        ConfigError, match=r"fingered_third\.py, line 1: .*Your functions import it"
    ):
        fingerprint(["transform"], ["fingered.derive.columns"])
