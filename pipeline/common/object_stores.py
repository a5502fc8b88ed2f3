"""Object stores that TensorFlow does not support without tensorflow-io: `s3://`.

Google's `gs://` is built in. Beam reads and writes S3 with boto3. Both packages are in the extra
`s3`, and read credentials, region and endpoint (MinIO, SeaweedFS, Ceph) from AWS's environment
variables.
"""

from __future__ import annotations

import importlib
import os
import re

from pipeline.common.errors import ConfigError


def register_file_systems(text: str) -> None:
    """Register the file systems of the paths in a text, before any file is opened.

    A ConfigError: it names `s3://`, and the packages for it are not installed.
    """
    if "s3://" not in text:
        return
    # tensorflow-io takes the endpoint from its own variable.
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        os.environ.setdefault("S3_ENDPOINT", endpoint)
    if region := os.environ.get("AWS_DEFAULT_REGION"):
        os.environ.setdefault("AWS_REGION", region)
    lacking = []
    for module, package in (("boto3", "boto3"), ("tensorflow_io", "tensorflow-io")):
        try:
            importlib.import_module(module)
        except ImportError:
            lacking.append(package)
    if lacking:
        raise ConfigError(
            f"s3:// needs packages that are not installed here: {', '.join(lacking)}. Run `uv "
            "pip install 'tfx-largebatch[s3]'`, also in images. tensorflow-io has wheels only for "
            "TFX 1.16 (Python 3.10 and 3.11); on TFX 1.21 use gs://."
        )
    import tensorflow as tf

    if "s3" not in tf.io.gfile.get_registered_schemes():
        raise ConfigError(
            f"s3:// is not supported by TensorFlow {tf.__version__}: the installed tensorflow-io "
            "is for TensorFlow 2.16 (TFX 1.16). On TFX 1.21 use gs://."
        )


def missing_buckets(text: str) -> str:
    """Return a sentence on the buckets in a text that do not exist, or cannot be listed; else "".

    TensorFlow finds no file in a bucket that does not exist, and Beam's error does not name it.
    """
    from tensorflow.io import gfile

    missing = []
    for bucket in dict.fromkeys(re.findall(r"(?:s3|gs)://[\w.-]+", text)):
        try:
            exists = gfile.exists(f"{bucket}/")
        except Exception:  # no answer: nothing is known about the bucket
            continue
        if not exists:
            missing.append(bucket)
    if not missing:
        return ""
    return (
        f"{', '.join(missing)}: this bucket does not exist, or these credentials may not list it. "
        "Create it, or correct the path in the YAML."
    )
