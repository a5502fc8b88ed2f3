"""Evaluation takes data and metrics as Keras' `evaluate` and `compile` do."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainingLoop, TrainStep
from trainer_module.loop.evaluation import Evaluation

ROWS = 23
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 4)).astype("float32")
W = RNG.uniform(0.1, 2, ROWS).astype("float32")
CLASSES = RNG.integers(0, 3, ROWS)
LABELS = {
    "price": X.sum(1, keepdims=True),
    "cls": CLASSES,
    "hot": keras.utils.to_categorical(CLASSES, 3),
    "yes": (X[:, :1] > 0).astype("float32"),
}
LOSSES = {
    "price": "mse",
    "cls": "sparse_categorical_crossentropy",
    "hot": "categorical_crossentropy",
    "yes": "binary_crossentropy",
}
UNITS = {"price": (1, None), "cls": (3, "softmax"), "hot": (3, "softmax"), "yes": (1, "sigmoid")}
Dense = keras.layers.Dense


def model(*names, kind=dict):
    """A model with these outputs, in a dict, a list, or alone."""
    keras.utils.set_random_seed(0)
    x = keras.Input((4,))
    found = {name: Dense(UNITS[name][0], UNITS[name][1], name=name)(x) for name in names}
    if kind is dict:
        return keras.Model(x, found)
    return keras.Model(x, list(found.values()) if kind is list else found[names[0]])


def squared(labels, outputs):
    return keras.ops.mean((labels - outputs) ** 2, -1)


def parts(values, names, kind):
    """The values of these outputs in the structure of the model's outputs."""
    found = {name: values[name] for name in names}
    return found if kind is dict else list(found.values()) if kind is list else found[names[0]]


def dataset(rows):
    return tf.data.Dataset.from_tensor_slices(rows).batch(8)


OBJECT = keras.metrics.MeanAbsoluteError
CASES = [
    (None, ["price"], ["mae", "MeanSquaredError", squared, OBJECT(name="mine"), OBJECT]),
    (None, ["hot"], ["acc", "categorical_accuracy", "auc"]),
    (None, ["yes"], ["accuracy", "AUC", "precision", "binary_accuracy"]),
    (dict, ["cls", "hot", "yes"], {name: ["accuracy"] for name in ("cls", "hot", "yes")}),
    (list, ["price", "cls"], ["mae", ["accuracy"]]),
    (list, ["price", "cls"], [["mae", "mse"], None]),
]


@pytest.mark.parametrize(("kind", "names", "metrics"), CASES)
def test_arrays_and_metrics_as_in_keras(kind, names, metrics):
    """Reference: Keras' evaluate with weighted_metrics, 1e-5 (float32 sums in another order)."""
    made = model(*names, kind=kind)
    labels, losses = parts(LABELS, names, kind), parts(LOSSES, names, kind)
    found = Evaluation(made, losses, (X, labels, W), metrics=metrics)()
    listed = metrics if isinstance(metrics, (list, dict)) else [metrics]
    made.compile("sgd", losses, weighted_metrics=listed)
    weights = parts(dict.fromkeys(names, W), names, kind) if kind is not None else W
    theirs = made.evaluate(X, labels, sample_weight=weights, verbose=0, return_dict=True)
    ours = {name: value for name, value in found.items() if name != "loss"}
    theirs = [value for name, value in theirs.items() if not name.endswith("loss")]
    # Outputs of a list have other names in Keras, and it sorts those of a dict.
    assert sorted(ours.values()) == pytest.approx(sorted(theirs), rel=1e-5)
    assert all(np.isfinite(list(found.values())))


def test_results_have_the_names_of_the_metrics():
    found = Evaluation(
        model("price", "cls"),
        {"price": "mse", "cls": LOSSES["cls"]},
        (X, {"price": LABELS["price"], "cls": CLASSES}),
        metrics={"cls": ["acc"], "price": ["mae", squared, OBJECT]},
    )
    expected = ["loss", "cls_acc", "price_mae", "price_squared", "price_mean_absolute_error"]
    assert list(found()) == expected
    assert found.names == expected


def test_features_in_a_dict_and_a_subclassed_model():
    """Reference: the same rows in a dataset with other batches, 1e-6."""

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.head = Dense(3, "softmax")

        def call(self, x):
            return {"cls": self.head(keras.ops.concatenate([x["a"], x["b"]], -1))}

    made, features = Subclassed(), {"a": X[:, :1], "b": X[:, 1:]}
    made({name: value[:1] for name, value in features.items()})
    labels, losses = {"cls": CLASSES}, {"cls": LOSSES["cls"]}
    rows = tf.data.Dataset.from_tensor_slices((features, labels)).batch(5)
    given = {"metrics": {"cls": ["accuracy"]}}
    found = Evaluation(made, losses, (features, labels), **given)()
    assert found == pytest.approx(Evaluation(made, losses, rows, **given)(), rel=1e-6)
    assert set(found) == {"loss", "cls_accuracy"}


def test_wrong_types_are_rejected_by_the_constructor():
    for given, message in [
        ({"metrics": [1]}, r"1 is a builtins.int"),
        ({"metrics": ["maee"]}, r"metrics='maee' is not a Keras metric; did you mean 'mae'"),
        ({"metrics": [keras.layers.Dense]}, r"is a builtins.type"),
        ({"metrics": ["mean_io_u"]}, r"metrics='mean_io_u' cannot be made by its name"),
        ({"metrics": ["mae", "mae"]}, r"names loss, mae, mae repeat"),
        ({"metrics": [["mae"], ["mse"]]}, r"are of one output"),
        ({"batches": X}, r"data is a ndarray: give a tf.data.Dataset.*tuple of arrays"),
        ({"batches": (X, LABELS["price"][:3])}, r"of the data of the evaluation have 3, 23 rows"),
        ({"batches": (X,)}, r"data is a tuple: give a tf.data.Dataset.*\(features, labels\)"),
        ({"batches": [X, LABELS["price"]]}, r"data is a list"),
        ({"batches": lambda epoch: None}, r"data is a function"),
        ({"batches": dataset((X, W, W, W))}, r"a batch is .*got tuple of 4"),
    ]:
        given = {"batches": (X, LABELS["price"]), **given}
        with pytest.raises(ValueError, match=message):
            Evaluation(model("price", kind=None), "mse", **given)


def test_metrics_that_do_not_fit_the_outputs_are_rejected():
    for kind, metrics, message in [
        (dict, {"price": ["mae"], "clss": ["acc"]}, "no loss of an output 'clss'; did you mean"),
        (dict, ["mae"], "for the outputs price, cls: give a dict"),
        (dict, {"price": {"cls": ["mae"]}}, "no loss of an output 'cls'"),
        (list, ["mae"], "has 1 entries for 2 outputs"),
    ]:
        names = ["price", "cls"]
        data = (X, parts(LABELS, names, kind))
        with pytest.raises(ValueError, match=message):
            Evaluation(model(*names, kind=kind), parts(LOSSES, names, kind), data, metrics=metrics)


def test_an_evaluation_that_cannot_be_called_is_rejected():
    made = model("price", kind=None)
    step = TrainStep(made, keras.optimizers.SGD(), "mse", micro_batch_size=8)
    loop = functools.partial(TrainingLoop, step, (X, LABELS["price"]), batch_size=8, epochs=1)
    with pytest.raises(ValueError, match=r"evaluate is a tuple: give Evaluation\("):
        loop(evaluate=(X, LABELS["price"]))
