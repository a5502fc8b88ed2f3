"""Metrics of rows that do not define them, in the trainer's evaluation and all that reads it."""

from __future__ import annotations

import math

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as reference

from trainer_module.loop.callback import EpochEnd
from trainer_module.loop.callbacks import EarlyStopping
from trainer_module.loop.evaluation import Evaluation
from trainer_module.model.metrics import create_metric

NAMES = ("auc", "precision", "recall", "f1_score", "accuracy")


def evaluation(strategy, kind, names, labels, scores, weights=None):
    """An Evaluation of a model that gives the scores as they are."""
    with strategy.scope():
        inputs = keras.Input((scores.shape[1],))
        model = keras.Model(inputs, keras.layers.Identity()(inputs))
        metrics = [create_metric(name, kind) if isinstance(name, str) else name() for name in names]
    loss = "binary_crossentropy" if kind == "binary" else "sparse_categorical_crossentropy"
    data = batches(labels, scores, weights)
    return Evaluation(model, loss, data, metrics=metrics, strategy=strategy)


def batches(labels, scores, weights=None):
    rows = (scores.astype("float32"), labels[:, None], *([] if weights is None else [weights]))
    return tf.data.Dataset.from_tensor_slices(rows).batch(5)


def undefined(found):
    return {name for name, value in found.items() if math.isnan(value)}


def test_auc_of_one_class_is_nan(strategies):
    """Keras returns 0.0 for each. Metrics that a program creates behave the same."""
    strategy = strategies["mirrored2"]
    scores = np.linspace(0.05, 0.95, 12)[:, None]
    names = [*NAMES, lambda: keras.metrics.AUC(curve="PR", name="pr")]
    zeros, ones = np.zeros(12, "int64"), np.ones(12, "int64")
    evaluate = evaluation(strategy, "binary", names, zeros, scores, np.ones(12))

    def evaluated(labels, scores=scores, weights=None):
        evaluate.batches = batches(labels, scores, np.ones(12) if weights is None else weights)
        found = evaluate()
        assert math.isfinite(found["loss"])
        return found

    assert undefined(evaluated(zeros)) == {"auc", "pr", "recall"}
    low = evaluated(zeros, scores / 4)
    assert undefined(low) == {"auc", "pr", "recall", "precision", "f1_score"}
    found = evaluated(ones)
    assert undefined(found) == {"auc", "pr"}
    assert (found["precision"], found["recall"]) == (1.0, 0.5)
    # The other class is there, but weighs nothing.
    found = evaluated(np.r_[1, zeros[1:]], weights=np.r_[0.0, np.ones(11)])
    assert undefined(found) == {"auc", "pr", "recall"}
    found = evaluated(np.r_[1, zeros[1:]])
    assert not undefined(found)
    assert found["auc"] == 0.0  # the only positive row has the lowest score: this 0 is one


def test_f_score_averages_over_the_classes_that_occur(strategies):
    """Reference: scikit-learn, whose mean is of the classes that occur; tolerance 1e-6."""
    random = np.random.default_rng(0)
    scores = random.uniform(size=(30, 4))
    scores[:, 3] = 0.0  # never predicted
    labels = random.integers(0, 3, 30)  # nor there
    names = ["f1_score", "auc"]
    found = evaluation(strategies["one_device"], "multiclass", names, labels, scores)()
    expected = reference.f1_score(labels, scores.argmax(1), average="macro")
    assert found["f1_score"] == pytest.approx(expected, abs=1e-6)
    assert math.isnan(found["auc"])  # of class 3
    assert math.isfinite(found["loss"])


def test_undefined_metric_does_not_stop_training(caplog):
    """Three undefined epochs of a patience of 2 do not end the training; later ones count."""
    stopping = EarlyStopping(full_batch.mlp(), monitor="auc", patience_epochs=2)
    stopped = [
        stopping.on_epoch(EpochEnd(epoch, epoch, 0.0, {"auc": auc}, {}))
        for epoch, auc in enumerate([math.nan, math.nan, math.nan, 0.7, math.nan, 0.6])
    ]
    assert stopped == [False] * 5 + [True]
    warnings = [r.getMessage() for r in caplog.records if "cannot judge" in r.getMessage()]
    assert len(warnings) == 1
    assert "auc is undefined (NaN) of the eval rows" in warnings[0]
