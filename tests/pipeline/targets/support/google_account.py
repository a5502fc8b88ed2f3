"""A service account for Google's clients: with its key nobody outside of this machine is asked."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

# Of accounts of Google's own universe the client asks, in the background, where they may be used.
UNIVERSE = "loopback.test"


def write_account_key(file: Path) -> Path:
    """Writes a key file whose tokens the client signs itself."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "my-project",
        "client_email": "submitter@my-project.iam.gserviceaccount.com",
        "private_key": text.decode(),
        "token_uri": "http://127.0.0.1:9/token",
        "universe_domain": UNIVERSE,
    }
    file.write_text(json.dumps(account))
    return file


def client_environment(key: Path, url: str) -> dict[str, str]:
    """Variables by which Google's clients find that account, and a server in place of Vertex."""
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": str(key),
        "GOOGLE_CLOUD_UNIVERSE_DOMAIN": UNIVERSE,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{url}/",
    }
