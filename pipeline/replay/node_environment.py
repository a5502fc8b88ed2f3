"""The variables of a node's process: those of a pod and, with `--remote`, credentials."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

# This machine replaces the image: its Python, its libraries, its devices.
_OF_THE_IMAGE = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TMPDIR")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Read by the clients of AWS, Google and libcurl; files in their values are passed on as well.
_CREDENTIALS = ("AWS_", "GOOGLE_", "CLOUDSDK_", "GCE_", "S3_")
_CONNECTIONS = (
    *("STORAGE_EMULATOR_HOST", "NO_GCE_CHECK", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
    *("REQUESTS_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("https_proxy", "http_proxy", "no_proxy"),
)
# Where those clients look below HOME if no variable names a place.
_FILES_AT_HOME = {
    "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials",
    "AWS_CONFIG_FILE": ".aws/config",
    "CLOUDSDK_CONFIG": ".config/gcloud",
    "GOOGLE_APPLICATION_CREDENTIALS": ".config/gcloud/application_default_credentials.json",
}


class Credentials(NamedTuple):
    """The credentials of this machine for remote places.

    Attributes:
        env: Variables.
        files: Files and folders in their values.
    """

    env: Mapping[str, str]
    files: tuple[Path, ...]

    @classmethod
    def of_this_machine(cls) -> Credentials:
        """Return the credentials that the clients of AWS and Google would find here."""
        env = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_CREDENTIALS) or name in _CONNECTIONS
        }
        for name, below_home in _FILES_AT_HOME.items():
            path = Path.home() / below_home
            if name not in env and path.exists():
                env[name] = str(path)
        files = [Path(value) for value in env.values() if value.startswith("/")]
        return cls(env, tuple(path for path in files if path.exists()))


NO_CREDENTIALS = Credentials({}, ())


def pod_environment(name: str, home: Path, *, secrets: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of a pod whose image is replaced by this machine.

    Args:
        name: Name of the node.
        home: An empty folder, because a pod does not contain the user's home.
        secrets: Variables that the cluster sets; taken from this machine if set here.
    """
    kept = [name for name in (*_OF_THE_IMAGE, *secrets) if name in os.environ]
    return {
        **{each: os.environ[each] for each in kept},
        "PATH": f"{Path(sys.executable).parent}:{_SYSTEM_PATH}",
        "HOME": str(home),
        "PYTHONUNBUFFERED": "1",
        "KFP_POD_NAME": name.lower(),
        "KFP_POD_UID": name.lower(),
    }
