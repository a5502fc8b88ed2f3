"""A model of two versions, and rows for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_model import ROWS, write_model


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two versions, of which 12 is the latest."""
    folder = tmp_path_factory.mktemp("serving_model")
    write_model(folder / "12")
    (folder / "9").symlink_to(folder / "12")
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Three rows with missing values."""
    file = tmp_path / "rows.csv"
    file.write_text(ROWS, encoding="utf-8")
    return file


@pytest.fixture(scope="package")
def service_account_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service account's key file; tokens are signed with it, without asking a server."""
    from google_account import write_account_key

    return write_account_key(tmp_path_factory.mktemp("key") / "key.json")
