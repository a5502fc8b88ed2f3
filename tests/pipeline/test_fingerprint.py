"""The fingerprint that lets TFX's cache see an edited function."""

from __future__ import annotations

import importlib

import pytest

from pipeline.config import ConfigError
from pipeline.fingerprint import fingerprint


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules, on the Python path."""
    folder = tmp_path / "fingerprinted"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "derive.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return folder


def test_an_edited_source_changes_it(package):
    before = fingerprint(["fingerprinted.derive"]), fingerprint(["fingerprinted"])
    assert before == (fingerprint(["fingerprinted.derive"]), fingerprint(["fingerprinted"]))
    (package / "derive.py").write_text("VALUE = 2\n")
    assert fingerprint(["fingerprinted.derive"]) != before[0]
    assert fingerprint(["fingerprinted"]) != before[1]


def test_the_order_of_modules_does_not_matter(package):
    names = ["fingerprinted.derive", "transform"]
    assert fingerprint(names) == fingerprint(names[::-1])


def test_a_module_that_cannot_be_found_is_named():
    with pytest.raises(ConfigError, match="cannot find the Python module 'no_such_module'"):
        fingerprint(["no_such_module"])
