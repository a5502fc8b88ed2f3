"""The hook of `make docs`, as a module."""

from __future__ import annotations

import importlib.util

import pytest
from command_line import ROOT


@pytest.fixture(scope="session")
def site_pages():
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
