"""A model of two versions, and rows for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_model import write_model


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two versions, of which 12 is the latest."""
    folder = tmp_path_factory.mktemp("serving_model")
    write_model(folder / "12")
    (folder / "9").symlink_to(folder / "12")
    return folder
