"""A staged model as run_fn's model_fn, against the same model in one piece."""

from __future__ import annotations

import pytest
import small_transform
import tensorflow as tf

from trainer_module import run_fn


@pytest.mark.slow
def test_it_is_trained_evaluated_and_exported_as_any_model(fn_args, tmp_path):
    """Reference: the default model in one piece; metrics equal to 1e-6 after an epoch."""
    settings = {
        "strategy": "one_device",
        "global_batch_size": 100,
        "micro_batch_size": 30,
        "epochs": 1,
        "label": "generous",
        "metrics": ["auc"],
    }
    results = []
    for number, more in enumerate(
        ({}, {"model_fn": "user_model.staged", "recompute": ["outputs"]})
    ):
        args = fn_args(**settings, **more)
        args.model_run_dir = str(tmp_path / f"run{number}")
        args.serving_model_dir = str(tmp_path / f"serving{number}")
        results.append(run_fn(args).metrics)
    assert results[1] == pytest.approx(results[0], rel=1e-6)
    rows = [small_transform.serialized(row) for row in small_transform.raw_rows(20, seed=9)]
    served = []
    for number in range(2):
        saved = tf.saved_model.load(str(tmp_path / f"serving{number}"))
        served.append(saved.signatures["serving_default"](tf.constant(rows))["outputs"].numpy())
    assert served[1] == pytest.approx(served[0], rel=1e-5)
