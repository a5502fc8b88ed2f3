"""`profile_fn` on packed features of a Transform, and what it rejects."""

from __future__ import annotations

import json
import os
import types

import pytest

from trainer_module import profile_fn

TRAINING = {"global_batch_size": 60, "micro_batch_size": 20, "epochs": 1}


@pytest.mark.slow
def test_the_default_model_on_packed_features_under_two_replicas(fn_args, packed, tmp_path):
    args = fn_args(packed, **TRAINING, strategy="mirrored", logical_devices=2)
    profile = profile_fn(args, steps=4)
    assert (profile.steps, profile.global_batch_rows, profile.replicas) == (4, 60, 2)
    assert profile.parts["reduction over replicas"] > 0
    assert sum(profile.parts.values()) == pytest.approx(profile.recorded_seconds, rel=0.1)
    assert os.listdir(tmp_path) == []  # neither checkpoints nor a model


def test_several_processes_and_wrong_settings_are_rejected_first(monkeypatch):
    for changed, facts in [
        ({"strategy": "multi_worker"}, ["strategy='multi_worker'", "mirrored"]),
        ({"strategy": "parameter_server"}, ["strategy='parameter_server'"]),
        ({"workers": 2}, ["workers=2", "workers out"]),
        ({"epoch": 2}, ["trainer.epoch", "epochs"]),
    ]:
        args = types.SimpleNamespace(custom_config={"trainer": {**TRAINING, **changed}})
        with pytest.raises(ValueError) as error:  # noqa: PT011
            profile_fn(args)
        assert [fact for fact in facts if fact not in str(error.value)] == []
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    value = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(value))
    with pytest.raises(ValueError, match="TF_CONFIG"):
        profile_fn(types.SimpleNamespace(custom_config={"trainer": TRAINING}))
