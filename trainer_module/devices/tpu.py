"""Find a TPU before TensorFlow searches the network for it and waits."""

from __future__ import annotations

import glob
import importlib.util
import os
import socket

import tensorflow as tf

# TPUClusterResolver reads these if no name is given (tensorflow/python/tpu/client/client.py).
_NAMED_BY = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
# Device files of a TPU VM's chips, by the generation of the driver.
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")
_METADATA = ("metadata.google.internal", 80)
_PORT = 8470  # port of a TPU's server
_SECONDS = 3.0

_HOW = (
    "On a TPU VM set TPU_NAME=local; else name its address, TPU_NAME=grpc://10.0.0.2:8470, or its "
    "name in Google Cloud. Without one: strategy 'auto', 'mirrored' or 'one_device'."
)


def find_tpu() -> str:
    """Return the TPU's name for TPUClusterResolver: "local", "grpc://host:port", or its own.

    Raises:
        ValueError: There is no TPU, or the one that the environment names does not respond.
    """
    named = next((os.environ[name] for name in _NAMED_BY if os.environ.get(name)), "")
    chips = [path for pattern in _CHIPS for path in glob.glob(pattern)]
    if not named and not chips:
        raise ValueError(
            f"strategy='tpu': no TPU found: this machine has no {' or '.join(_CHIPS)}, and "
            f"neither {' nor '.join(_NAMED_BY)} is set. {_HOW}"
        )
    if named in ("", "local"):
        if not chips:
            raise ValueError(
                f"strategy='tpu' with TPU_NAME=local: this machine has no "
                f"{' or '.join(_CHIPS)}. {_HOW}"
            )
        return "local"
    if "://" in named or ":" in named:
        for address in named.split(","):
            host, _, port = address.rpartition("://")[2].partition(":")
            _reach(host, int(port or _PORT), f"the TPU {address!r} does not answer")
        return named
    if importlib.util.find_spec("googleapiclient") is None:
        raise ValueError(
            f"strategy='tpu' with TPU_NAME={named!r}: to ask Google Cloud where that is, "
            f"TensorFlow needs google-api-python-client and oauth2client; install them. {_HOW}"
        )
    _reach(*_METADATA, f"TPU_NAME={named!r} is a name in Google Cloud, and this machine is not")
    return named


def tpu_strategy() -> tf.distribute.Strategy:
    """Initialize the TPU and return the strategy of all its cores.

    Raises:
        ValueError: See `find_tpu`; or TensorFlow cannot use the TPU.
    """
    name = find_tpu()
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"strategy='tpu': TensorFlow {tf.__version__} cannot use the TPU {name!r} "
            f"({type(error).__name__}: {reason}). It needs a build for TPUs: pip install "
            "tensorflow-tpu."
        ) from error


def _reach(host: str, port: int, otherwise: str) -> None:
    try:
        with socket.create_connection((host, port), timeout=_SECONDS):
            pass
    except OSError as error:
        raise ValueError(f"strategy='tpu': {otherwise} ({host}:{port}: {error}). {_HOW}") from None
