"""Which file systems a text makes known; the S3 server itself is in tests/cluster."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from pipeline.common.errors import ConfigError
from pipeline.common.object_stores import register_file_systems

HAS_S3 = importlib.util.find_spec("tensorflow_io") is not None


def test_nothing_is_loaded_for_places_that_tensorflow_knows():
    before = set(sys.modules)
    register_file_systems("gs://bucket/root /home/me/output")
    assert {"boto3", "tensorflow_io"} & (set(sys.modules) - before) == set()


@pytest.mark.slow
def test_s3_is_known_afterwards_or_refused_with_the_package_that_lacks():
    """In a separate process: what is registered stays."""
    code = (
        "from pipeline.common.object_stores import register_file_systems as register\n"
        "register('s3://bucket/root')\n"
        "import os, tensorflow as tf\n"
        "print(tf.io.gfile.get_registered_schemes(), os.environ['S3_ENDPOINT'], flush=True)\n"
        "os._exit(0)\n"
    )
    endpoint = "http://127.0.0.1:9000"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AWS_ENDPOINT_URL": endpoint},
        capture_output=True,
        text=True,
        check=False,
    )
    if HAS_S3:
        assert "'s3'" in done.stdout, done.stderr
        assert endpoint in done.stdout
    else:
        assert "packages that are not installed here: tensorflow-io" in done.stderr


def test_packages_that_lack_are_named(monkeypatch):
    for module in ("boto3", "tensorflow_io"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ConfigError, match=r"not installed here: boto3, tensorflow-io.*tfx-largebatch\[s3\]"
    ):
        register_file_systems("s3://bucket")
