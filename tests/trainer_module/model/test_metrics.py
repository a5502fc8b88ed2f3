"""Any Keras metric over ragged batches, empty replicas and weights, against float64 references.

And metrics of rows that do not define them.
"""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
import user_metrics
from sklearn import metrics as reference

from trainer_module.loop.evaluation import Evaluation
from trainer_module.model.metrics import OneHotLabels, create_metric

# Batches of 13, 13, 13 and 1 row: ragged on two and three replicas, then empty ones.
ROWS, BATCH, CLASSES = 40, 13, 7
RANDOM = np.random.default_rng(3)
# Half-way between AUC's thresholds, so that its curve has every corner of the exact one.
SCORES = ((RANDOM.integers(0, 999, (ROWS, CLASSES)) + 0.5) / 999).astype("float32")
LABELS = {
    "binary": RANDOM.integers(0, 2, (ROWS, 1)),
    "multiclass": RANDOM.integers(0, 7, (ROWS, 1)),
}
LABELS["multiclass"][:CLASSES, 0] = range(CLASSES)
WEIGHTS = RANDOM.uniform(0.1, 2.0, ROWS) * (RANDOM.uniform(size=ROWS) > 0.3)
WEIGHTS[:CLASSES] = 1.5
LOSS = {"binary": "binary_crossentropy", "multiclass": "sparse_categorical_crossentropy"}


def macro_auc(y, p, w):
    return np.mean(
        [reference.roc_auc_score(y == c, p[:, c], sample_weight=w) for c in range(CLASSES)]
    )


def top_5(y, p, w):
    return reference.top_k_accuracy_score(y, p, k=5, sample_weight=w, labels=range(CLASSES))


# Name -> its value from labels [rows], scores [rows, outputs] and weights, in float64.
REFERENCES = {
    "binary": {
        "auc": lambda y, p, w: reference.roc_auc_score(y, p[:, 0], sample_weight=w),
        "f1_score": lambda y, p, w: reference.f1_score(y, p[:, 0] > 0.5, sample_weight=w),
        "precision": lambda y, p, w: reference.precision_score(y, p[:, 0] > 0.5, sample_weight=w),
        "mse": lambda y, p, w: np.average((y - p[:, 0]) ** 2, weights=w),
        "root_mean_squared_error": (
            lambda y, p, w: np.average((y - p[:, 0]) ** 2, weights=w) ** 0.5
        ),
        "R2Score": lambda y, p, w: reference.r2_score(y, p[:, 0], sample_weight=w),
        "BinaryIoU": lambda y, p, w: reference.jaccard_score(
            y, p[:, 0] > 0.5, average="macro", sample_weight=w
        ),
        "user_metrics.ScoreOfPositives": lambda y, p, w: np.average(p[y > 0, 0], weights=w[y > 0]),
        "user_metrics.first_score_above_second": lambda y, p, w: np.average(
            p[:, 0] > 0.5, weights=w
        ),
    },
    "multiclass": {
        "accuracy": lambda y, p, w: reference.accuracy_score(y, p.argmax(1), sample_weight=w),
        "auc": macro_auc,
        "f1_score": lambda y, p, w: reference.f1_score(
            y, p.argmax(1), average="macro", sample_weight=w
        ),
        "TopKCategoricalAccuracy": top_5,
        "SparseTopKCategoricalAccuracy": top_5,
        "categorical_accuracy": lambda y, p, w: reference.accuracy_score(
            y, p.argmax(1), sample_weight=w
        ),
        "mean_absolute_error": lambda y, p, w: np.average(
            abs(np.eye(CLASSES)[y] - p).mean(1), weights=w
        ),
        "user_metrics.ScoreOfPositives": lambda y, p, w: np.average(p[y > 0, 0], weights=w[y > 0]),
    },
}


def evaluation_of(strategy, kind, names, labels, scores, weights=None):
    """An Evaluation of a model that gives the scores as they are."""
    with strategy.scope():
        inputs = keras.Input((scores.shape[1],))
        model = keras.Model(inputs, keras.layers.Identity()(inputs))
        metrics = [create_metric(m, kind) if isinstance(m, str) else m() for m in names]
    data = batches(labels, scores, weights)
    return Evaluation(model, LOSS[kind], data, metrics=metrics, strategy=strategy)


def batches(labels, scores, weights=None):
    rows = (scores.astype("float32"), labels[:, None], *([] if weights is None else [weights]))
    return tf.data.Dataset.from_tensor_slices(rows).batch(BATCH)


def evaluation(strategy, kind, metrics, *, weighted):
    scores = SCORES[:, : 1 if kind == "binary" else CLASSES]
    weights = WEIGHTS if weighted else None
    return evaluation_of(strategy, kind, metrics, LABELS[kind][:, 0], scores, weights)


@pytest.mark.parametrize(
    ("name", "weighted", "kind"),
    [
        ("one_device", False, "binary"),
        ("mirrored3", True, "binary"),
        ("one_device", True, "multiclass"),
    ],
)
def test_metrics_are_those_of_all_rows_at_once(strategies, name, kind, weighted):
    """Tolerance 2e-6 relative: Keras' metrics are float32 sums."""
    metrics = REFERENCES[kind]
    evaluate = evaluation(strategies[name], kind, metrics, weighted=weighted)
    weights = WEIGHTS if weighted else np.ones(ROWS)
    scores = SCORES[:, : 1 if kind == "binary" else CLASSES].astype("float64")
    expected = {
        name.rpartition(".")[2]: of(LABELS[kind][:, 0], scores, weights)
        for name, of in metrics.items()
    }
    batches = evaluate.batches
    evaluate.batches = batches.take(1)
    evaluate()
    evaluate.batches = batches  # this call starts from zero again
    found = evaluate()
    del found["loss"]
    assert found == pytest.approx(expected, rel=2e-6)


def test_a_result_per_class_has_a_name_per_class(strategies):
    """Reference: scikit-learn, tolerance 2e-6."""
    per_class = [lambda: OneHotLabels(keras.metrics.F1Score(name="f1"))]
    found = evaluation(strategies["mirrored2"], "multiclass", per_class, weighted=True)()
    expected = reference.f1_score(
        LABELS["multiclass"][:, 0], SCORES.argmax(1), average=None, sample_weight=WEIGHTS
    )
    assert [found[f"f1/{i}"] for i in range(CLASSES)] == pytest.approx(list(expected), rel=2e-6)


def test_metrics_that_would_be_wrong_are_rejected(strategies):
    for kind, make, message in [
        # Each would give a number: of classes broadcast against probabilities, or of cut weights.
        ("multiclass", lambda: keras.metrics.F1Score(name="f1"), r"'f1' compares labels .*OneHot"),
        ("multiclass", lambda: keras.metrics.MeanAbsoluteError(), "'mean_absolute_error' compares"),
        ("binary", lambda: keras.metrics.BinaryIoU(), r"counts in int64.*dtype='float32'"),
    ]:
        with pytest.raises(ValueError, match=message):
            evaluation(strategies["one_device"], kind, [make], weighted=True)()


def test_unknown_metric_names_are_rejected():
    for name, message in [
        ("aucc", r"trainer.metrics='aucc' is not a Keras metric; did you mean"),
        ("MeanIoU", r"'MeanIoU' needs arguments .*num_classes.*dotted path of a function"),
        ("user_metrics.CLASSES", r"'user_metrics.CLASSES' is a int: give a keras.metrics.Metric"),
        (
            "user_metrics.top_5",
            r"top_5' does not return a keras.metrics.Metric when called without",
        ),
        ("user_metrics.nothing", r"module 'user_metrics' has no 'nothing'"),
    ]:
        with pytest.raises(ValueError, match=message):
            create_metric(name, "binary")


def test_metric_that_fails_in_a_graph_is_named():
    for how in [np.asarray, lambda total: total.value.numpy()]:

        class Positives(user_metrics.ScoreOfPositives):
            def result(self, how=how):
                return how(self.total)

        data = tf.data.Dataset.from_tensors(
            (np.ones((4, 2), "float32"), np.ones((4, 1), "float32"))
        )
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        evaluate = Evaluation(model, "mse", data, metrics=[Positives()])
        with pytest.raises(
            ValueError, match=r"metric 'positives': result\(\) fails in a graph .*ops"
        ):
            evaluate()


NAMES = ("auc", "precision", "recall", "f1_score", "accuracy")


def undefined(found):
    return {name for name, value in found.items() if math.isnan(value)}


def test_auc_of_one_class_is_nan(strategies):
    """Keras returns 0.0 for each. Metrics that a program creates behave the same."""
    strategy = strategies["one_device"]
    scores = np.linspace(0.05, 0.95, 12)[:, None]
    names = [*NAMES, lambda: keras.metrics.AUC(curve="PR", name="pr")]
    zeros, ones = np.zeros(12, "int64"), np.ones(12, "int64")
    evaluate = evaluation_of(strategy, "binary", names, zeros, scores, np.ones(12))

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
    found = evaluation_of(strategies["one_device"], "multiclass", names, labels, scores)()
    expected = reference.f1_score(labels, scores.argmax(1), average="macro")
    assert found["f1_score"] == pytest.approx(expected, abs=1e-6)
    assert math.isnan(found["auc"])  # of class 3
    assert math.isfinite(found["loss"])
