"""How this machine reaches package indexes, for the commands of a build but not in any layer.

A build gets two secrets: a file of `export` lines, and certificates. An index's address may contain
a password; neither file is in an image, nor in its history.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_CERTIFICATES_THERE = "/run/secrets/certificates"
_CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# Settings that locate packages, by pip's name. A build has no folder of this machine.
_OF_PIP_AND_UV = {
    "index-url": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    "extra-index-url": ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"),
}
PASSED_ON = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"),
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"),
    *("UV_INDEX_STRATEGY", "UV_INSECURE_HOST", "UV_HTTP_TIMEOUT", "UV_SYSTEM_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
"""Variables of this machine that the commands of a build see."""


class Secrets(NamedTuple):
    """Files for `--secret`; None: no such secret."""

    settings: Path | None
    certificates: Path | None


def write_secrets(folder: Path) -> Secrets:
    """Write the settings with read permission for the current user only.

    Args:
        folder: Folder for the settings. The certificates are not copied.
    """
    configured = _pip_config()
    variables = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    for option, (pip_name, uv_name) in _OF_PIP_AND_UV.items():
        if address := variables.get(pip_name) or configured.get(option):
            variables = {pip_name: address, uv_name: address} | variables
    bundles = [os.environ.get(name) for name in _CERTIFICATE_VARIABLES] + [configured.get("cert")]
    certificates = next((Path(path) for path in bundles if path and Path(path).is_file()), None)
    if certificates:
        variables |= dict.fromkeys(_CERTIFICATE_VARIABLES, _CERTIFICATES_THERE)
    if not variables:
        return Secrets(None, None)
    path = folder / "settings"
    path.touch(mode=0o600)
    path.write_text(
        "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    )
    return Secrets(path, certificates)


def _pip_config() -> dict[str, str]:
    """Return the settings in pip's files; uv reads none of them."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return dict(re.findall(r"^[\w:]+\.([\w-]+)='(.*)'$", done.stdout, re.MULTILINE))
