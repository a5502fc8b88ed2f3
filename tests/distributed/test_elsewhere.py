"""A run continues with another number of workers: the same global batches, the same updates."""

from __future__ import annotations

import json

import keras
import pytest
from on_workers import on_workers
from trains import fn_args

from trainer_module import run_fn

pytestmark = pytest.mark.distributed

TRAINER = {
    "global_batch_size": 50,
    "micro_batch_size": 7,
    "optimizer": {"name": "adam", "learning_rate": 0.01},
    "ema_momentum": 0.9,
    "metrics": ["auc"],
    "model": {"dropout": 0.0},  # its masks are a replica's own
}


def alone(folder, data, epochs):
    keras.utils.set_random_seed(0)
    trainer = {**TRAINER, "epochs": epochs}
    return run_fn(fn_args(str(folder), data, trainer, baselines="eval"))


def test_from_one_process_to_two_workers_to_two_devices(packed, tmp_path):
    """Reference: one process all the time. Tolerance 1e-5 relative in float32 over 72 steps."""
    expected = alone(tmp_path / "straight", packed, 6)
    moved = tmp_path / "moved"
    alone(moved, packed, 2)
    asked = {"data": packed, "trainer": {**TRAINER, "epochs": 4}}
    results = [dict(each) for each in on_workers("trains", moved, json.dumps(asked), workers=2)]
    assert all(each["result"]["steps"] == 48 for each in results)
    keras.utils.set_random_seed(0)
    trainer = {**TRAINER, "epochs": 6, "strategy": "mirrored", "logical_devices": 2}
    found = run_fn(fn_args(str(moved), packed, trainer, baselines="eval"))
    assert found.steps == expected.steps == 72
    for name, values in expected.history.items():
        assert found.history[name] == pytest.approx(values, rel=1e-5)
    assert len(expected.history["val_loss"]) == 6
