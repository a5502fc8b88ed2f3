"""Strategies by name."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from trainer_module import create_strategy
from trainer_module.devices import strategies as module
from trainer_module.devices.replicas import replica_devices, replica_kind


def test_names_and_devices():
    for name, devices, kind, replicas in [
        ("auto", None, tf.distribute.OneDeviceStrategy, 1),
        ("auto", 2, tf.distribute.MirroredStrategy, 2),
        ("one_device", None, tf.distribute.OneDeviceStrategy, 1),
        ("mirrored", None, tf.distribute.MirroredStrategy, 4),  # all that conftest.py made
        ("mirrored", 2, tf.distribute.MirroredStrategy, 2),
    ]:
        strategy = create_strategy(name, logical_devices=devices)
        assert isinstance(strategy, kind)
        assert strategy.num_replicas_in_sync == replicas


def test_replica_devices(strategies):
    devices = {name: replica_devices(strategy) for name, strategy in strategies.items()}
    assert devices == {
        "none": ("CPU:0",),
        "one_device": ("CPU:0",),
        "mirrored2": ("CPU:0", "CPU:1"),
        "mirrored3": ("CPU:0", "CPU:1", "CPU:2"),
    }


def test_replica_kind(strategies):
    kinds = {name: replica_kind(strategy) for name, strategy in strategies.items()}
    assert set(kinds.values()) == {"CPU"}
    assert replica_kind(tf.distribute.OneDeviceStrategy("GPU:0")) == "GPU"


def test_replicas_on_other_devices_are_rejected():
    """A parameter server's or a TPU's are not devices of this process."""
    strategy = tf.distribute.OneDeviceStrategy("/job:worker/task:1/device:TPU:0")
    with pytest.raises(ValueError, match=r"replicas are on TPU:0 of this process: only those of"):
        replica_devices(strategy)


def test_a_strategy_of_one_process_is_rejected_with_several_workers(monkeypatch):
    cluster = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    for name in ("one_device", "mirrored"):
        with pytest.raises(ValueError, match=rf"^strategy='{name}' with 2 workers in TF_CONFIG"):
            create_strategy(name)


def test_several_workers_need_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match=r"needs TF_CONFIG.*trainer_module\.launch --workers 2"):
        create_strategy("multi_worker")


def test_a_cluster_of_one_worker_trains_on_its_own_devices(monkeypatch):
    cluster = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    strategy = create_strategy("multi_worker", logical_devices=2)
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert strategy.num_replicas_in_sync == 2


def test_auto_logs_its_choice_and_the_reason(caplog):
    with caplog.at_level("INFO", "absl"):
        create_strategy("auto")
        create_strategy("auto", logical_devices=2)
    messages = [r.getMessage() for r in caplog.records if "strategy: auto" in r.getMessage()]
    assert messages == [
        "strategy: auto is one_device: TensorFlow sees no GPU",
        "strategy: auto is mirrored: logical_devices asks for 2 CPU devices",
    ]


def test_parameter_servers_need_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match=r"names a chief, workers and.*--parameter-servers"):
        create_strategy("parameter_server")
    addresses = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]}
    chief = {"cluster": addresses, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(chief))
    missing = r"ps 0 \(127.0.0.1:3\), worker 0 \(127.0.0.1:2\) did not start within start_time"
    with pytest.raises(ValueError, match=missing):
        create_strategy("auto", start_timeout_seconds=0.5)
    with pytest.raises(ValueError, match=r"'mirrored' with parameter servers in TF_CONFIG"):
        create_strategy("mirrored")


def test_a_missing_tpu_is_an_error_with_the_fix(monkeypatch, tmp_path):
    """Before TensorFlow searches the network for one; this build has no operations for TPUs."""
    for name in ("TPU_NAME", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_TPU_CHIPS", (str(tmp_path / "accel*"),))
    with pytest.raises(ValueError, match=r"machine has no .*accel.*set TPU_NAME=local; else name"):
        create_strategy("tpu")
    (tmp_path / "accel0").touch()
    with pytest.raises(ValueError, match=r"cannot use the TPU 'local' .*install tensorflow-tpu"):
        create_strategy("tpu")
