"""Errors of strategy "tpu" without a TPU, before TensorFlow searches the network for one."""

from __future__ import annotations

import socket
import time

import pytest

from trainer_module import create_strategy
from trainer_module.devices import tpu


@pytest.fixture
def chips(monkeypatch, tmp_path):
    """No TPU is named, and a machine has chips where the fixture's function made them."""
    for name in ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tpu, "_CHIPS", (str(tmp_path / "accel*"),))
    return lambda: (tmp_path / "accel0").touch()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (None, r"no TPU found: this machine has no .*accel.* neither TPU_NAME nor KUBE_.* is set"),
        ("local", r"TPU_NAME=local: this machine has no .*accel"),
        ("my-tpu", r"TPU_NAME='my-tpu'.*(google-api-python-client|this machine is not)"),
    ],
)
def test_a_missing_tpu_is_an_error_with_the_fix(chips, monkeypatch, named, message):
    if named is not None:
        monkeypatch.setenv("TPU_NAME", named)
    started = time.monotonic()
    with pytest.raises(ValueError, match=message + r".*set TPU_NAME=local; else name its address"):
        create_strategy("tpu")
    assert time.monotonic() - started < 20, "it does not wait for anyone"


def test_an_unreachable_address_is_an_error(chips, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("TPU_NAME", f"grpc://127.0.0.1:{port}")
        assert tpu.find_tpu() == f"grpc://127.0.0.1:{port}"
    with pytest.raises(ValueError, match=rf"'grpc://127.0.0.1:{port}' does not answer \(127.0.0.1"):
        create_strategy("tpu")


def test_chips_without_tensorflow_support_are_an_error(chips):
    """TensorFlow's own resolver looks at them; this build has no operations for TPUs."""
    chips()
    with pytest.raises(ValueError, match=r"cannot use the TPU 'local' .*install tensorflow-tpu"):
        create_strategy("tpu")
