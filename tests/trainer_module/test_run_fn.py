"""run_fn from a plain TFT output to a SavedModel."""

from __future__ import annotations

import tensorflow as tf

from trainer_module import run_fn


def test_it_learns_without_a_layout(fn_args):
    args = fn_args(
        label="generous", epochs=8, global_batch_size=32, optimizer={"learning_rate": 0.01}
    )
    result = run_fn(args)
    assert result.stopped == "epochs"
    assert result.steps == 8 * 19  # ceil(600 / 32)
    # The label is a function of the features: a model that trains separates it well; a tenth
    # of the companies is missing.
    assert result.metrics["auc"] > 0.95
    tf.saved_model.load(args.serving_model_dir)
