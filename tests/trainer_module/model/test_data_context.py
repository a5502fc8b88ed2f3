"""Weights of classes from the settings and the rows."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from trainer_module import TrainerConfig, run_fn
from trainer_module.data.input_pipeline import summarise
from trainer_module.model.data_context import _by_number, balanced, class_names
from trainer_module.model.plan import resolve
from trainer_module.tfx.data import open_data

NAMES = ["setosa", "versicolor", "virginica"]


def test_balanced_equals_scikit_learn_and_uses_row_weights(fn_args):
    """Reference: compute_class_weight; with weights, equal sums by NumPy; 1e-12 relative."""
    data = open_data(fn_args(), TrainerConfig(label="company_id"))
    (_, labels) = next(iter(data.train.batches(10_000).as_numpy_iterator()))
    found = balanced(summarise(data.train).class_sums or {})
    classes = np.unique(labels)
    expected = compute_class_weight("balanced", classes=classes, y=labels[:, 0])
    assert sorted(found) == classes.tolist()
    np.testing.assert_allclose([found[c] for c in classes], expected, rtol=1e-12)

    weighted = dataclasses.replace(data.train, weight="hour_id")
    (_, labels, weights) = next(iter(weighted.batches(10_000).as_numpy_iterator()))
    found = balanced(summarise(weighted).class_sums or {})
    sums = [weights[labels[:, 0] == c].sum() * found[c] for c in classes]
    np.testing.assert_allclose(sums, weights.sum() / len(classes), rtol=1e-12)


@pytest.mark.slow(8)
def test_balanced_training_equals_weights_by_number(fn_args):
    """The loss on the eval rows: equal bit for bit, and another without weights."""
    counts = summarise(open_data(fn_args(), TrainerConfig(label="generous")).train).class_sums
    losses = []
    for weights in ("balanced", balanced(counts or {}), None):
        args = fn_args(
            label="generous",
            model_fn="user_model.fare_only",
            global_batch_size=150,
            steps=4,
            optimizer={"learning_rate": 0.05},
            tensorboard=False,
            class_weight={str(c): w for c, w in weights.items()}
            if isinstance(weights, dict)
            else weights,
        )
        args.model_run_dir += str(len(losses))
        losses.append(run_fn(args).metrics["loss"])
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_weights_by_class_name():
    setting = TrainerConfig.parse({"class_weight": {"virginica": 3, "0": 2}}).class_weight
    assert isinstance(setting, dict)
    assert _by_number(setting, NAMES, outputs=3, kind="multiclass") == {2: 3.0, 0: 2.0}
    read = types.SimpleNamespace(
        vocabulary_file_by_name=lambda name: "there",
        vocabulary_by_name=lambda name: [each.encode() for each in NAMES],
    )
    assert class_names(read) == NAMES


def test_unknown_classes_are_rejected():
    for setting, names, message in [
        ({"virginca": 3.0}, NAMES, r"'virginca' is not a class of the label; .*'virginica'"),
        ({"yes": 3.0}, [], r"'yes' is not a class .*have no names; or use a number from 0 to 2"),
        ({3: 1.0}, NAMES, r"no class 3; its classes are 0 to 2"),
        ({1: 1.0, "versicolor": 2.0}, NAMES, r"class 1 \('versicolor'\) is listed by number and"),
    ]:
        with pytest.raises(ValueError, match=message):
            _by_number(setting, names, outputs=3, kind="multiclass")


def test_invalid_class_weights_are_rejected():
    for setting, message in [
        ("balance", r'class_weight.*use "balanced", or weights by class'),
        ({"no": -1}, r"class no has weight -1: use classes 0, 1, \.\.\. or their names"),
    ]:
        with pytest.raises(ValueError, match=message):
            TrainerConfig.parse({"class_weight": setting})


def test_class_weights_of_a_regression_are_rejected():
    for setting in ["balanced", {"cheap": 2.0}]:
        config = TrainerConfig(class_weight=setting)
        with pytest.raises(
            ValueError, match=r"^training\.class_weight=.*a number and has no class"
        ):
            resolve(config, label_kind="regression", section="training")
        resolve(config, label_kind="binary")
