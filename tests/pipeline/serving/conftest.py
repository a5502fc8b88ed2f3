"""A model of two versions, and rows for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
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
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = tmp_path_factory.mktemp("key") / "key.json"
    account = {
        "type": "service_account",
        "project_id": "my-project",
        "client_email": "deployer@my-project.iam.gserviceaccount.com",
        "private_key": text.decode(),
        "token_uri": "http://127.0.0.1:9/token",
        "universe_domain": "loopback.test",
    }
    file.write_text(json.dumps(account))
    return file
