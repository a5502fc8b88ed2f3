"""Strategies by name."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from trainer_module import create_strategy


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


def test_a_strategy_of_one_process_is_rejected_with_several_workers(monkeypatch):
    cluster = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    for name in ("one_device", "mirrored"):
        with pytest.raises(ValueError, match=rf"^strategy='{name}' with 2 workers in TF_CONFIG"):
            create_strategy(name)


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
