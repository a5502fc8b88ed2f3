"""Where the linear part of the default model starts."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_transform import serialized

from trainer_module import TrainerConfig, run_fn
from trainer_module.baselines.baselines import _compute_baselines
from trainer_module.baselines.linear_models import LinearModel, Sample
from trainer_module.baselines.linear_start import (
    LinearStart,
    _fit_linear_start,
    _held_out_error,
    has_linear_start,
    set_linear_weights,
)
from trainer_module.data.input_pipeline import summarise
from trainer_module.data.label_scale import LabelMoments, find_label_scale
from trainer_module.model.data_context import model_context, unsized_ids
from trainer_module.model.default_model import default_model
from trainer_module.model.model_context import ModelContext
from trainer_module.tfx.data import open_data

ROWS = 500
COMPANIES = 300  # more than the 256 columns of an id


def examples_of(path, features, spec):
    """Examples of a TFRecord file of these features, for the label `y`."""
    from trainer_module.data.input_pipeline import Examples

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in range(ROWS):
            values = {name: np.atleast_1d(of[row]).tolist() for name, of in features.items()}
            writer.write(serialized(values))
    return Examples((str(path),), spec, "y")


@pytest.fixture
def table():
    """Features of two kinds, and a score that is linear in them."""
    random = np.random.default_rng(0)
    # Half of the ids are rare: they share the last column.
    ids = np.minimum(random.geometric(0.01, size=ROWS), COMPANIES) - 1
    features = {
        "company": ids[:, None],
        "numbers": random.normal(size=(ROWS, 3)).astype(np.float32),
        "hour": random.integers(2, 6, size=(ROWS, 1)),
    }
    score = features["numbers"] @ [1.0, -2.0, 0.5] + np.sin(ids) + 0.3 * features["hour"][:, 0]
    return features, score + 0.1 * random.normal(size=ROWS)


def one_hot(features, weights=None):
    """The columns of the linear model, made by hand: standardised numbers, ids."""
    numbers = StandardScaler().fit_transform(features["numbers"], sample_weight=weights)
    company = np.eye(256)[np.minimum(features["company"][:, 0], 255)]
    hour = np.eye(4)[features["hour"][:, 0] - 2]
    return np.hstack([numbers, company, hour])


def started(tmp_path, table, label, kind, outputs=1, **settings):
    """(default model with its linear start, features)."""
    features, _ = table
    spec = {
        "company": tf.io.FixedLenFeature([1], tf.int64),
        "numbers": tf.io.FixedLenFeature([3], tf.float32),
        "hour": tf.io.FixedLenFeature([1], tf.int64),
    }
    label_type = tf.float32 if kind == "regression" else tf.int64
    examples = examples_of(
        tmp_path / "rows",
        {**features, "y": label},
        {**spec, "y": tf.io.FixedLenFeature([1], label_type)},
    )
    config = TrainerConfig(model={"linear": True, "hidden_units": [8]}, **settings)
    context = ModelContext(
        feature_spec=spec,
        transformed_schema=None,
        layout=None,
        label="y",
        label_kind=kind,
        outputs=outputs,
        id_sizes={"company": (0, COMPANIES), "hour": (2, 4)},
        config=config,
    )
    start = _fit_linear_start(context, examples, ROWS, [None])
    assert start.linear is not None
    keras.utils.set_random_seed(0)
    model = default_model(context)
    set_linear_weights(model, context, start.linear)
    return model, features


def test_the_untrained_model_predicts_as_ridge(tmp_path, table):
    """Reference: sklearn's Ridge on one-hot columns in float64; 1e-5 of a deviation."""
    features, score = table
    model, _ = started(tmp_path, table, score.astype(np.float32), "regression")
    reference = Ridge().fit(one_hot(features), score.astype(np.float32))
    np.testing.assert_allclose(
        model.predict(features, verbose=0)[:, 0], reference.predict(one_hot(features)), atol=1e-5
    )
    rare = {name: values.copy() for name, values in features.items()}
    rare["company"][:] = COMPANIES + 5  # not seen in training: as the rarest
    np.testing.assert_allclose(
        model.predict(rare, verbose=0)[:, 0], reference.predict(one_hot(rare)), atol=1e-5
    )


@pytest.mark.parametrize(("classes", "weights"), [(2, None), (2, {0: 1.0, 1: 9.0}), (3, None)])
def test_the_untrained_model_gives_the_probabilities_of_logistic_regression(
    tmp_path, table, classes, weights
):
    """Reference: sklearn's, with weights of mean 1, on one-hot columns; 2e-3 of a probability."""
    features, score = table
    label = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    kind = "binary" if classes == 2 else "multiclass"
    outputs = 1 if classes == 2 else 4  # no row has class 3
    model, _ = started(tmp_path, table, label, kind, outputs, class_weight=weights)
    each = np.array([(weights or {}).get(c, 1.0) for c in label])
    columns = one_hot(features, each)
    reference = LogisticRegression(tol=1e-8, max_iter=5000).fit(columns, label, each / each.mean())
    expected = reference.predict_proba(columns)
    found = model.predict(features, verbose=0)
    if classes == 2:
        expected = expected[:, 1:]
    else:
        assert found[:, 3].max() < 1e-3
        found = found[:, :3]
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize(("make", "better"), [(lambda linear: linear, "z_score"), (np.exp, "log")])
def test_the_label_scale_is_the_one_with_the_smaller_held_out_error(make, better):
    """Both labels are skewed: only the rows show which scale makes them linear in the features."""
    random = np.random.default_rng(1)
    rows = (
        random.exponential(size=(400, 2)) if better == "z_score" else random.normal(size=(400, 2))
    )
    labels = make(1 + rows @ [0.7, 0.4] + 0.01 * random.normal(size=400)).clip(min=0.01)
    moments = LabelMoments.of(labels)
    assert moments.as_is.skewness > 1
    options = {"loss": None, "own_model": False, "whole": False, "label": "y"}
    sample = Sample(csr_array(rows), labels, np.ones(400), 2)
    errors = {
        name: _held_out_error(sample, find_label_scale(name, moments, **options))
        for name in ("z_score", "log")
    }
    assert min(errors, key=errors.get) == better
    # Reference: the error of Ridge on every fifth row, fitted on the others.
    if better == "z_score":
        order = np.random.default_rng(0).permutation(400)
        expected = []
        for fold in range(5):
            held_out, fitted = order[fold::5], np.delete(order, np.s_[fold::5])
            deviation = moments.as_is.deviation[0]
            model = make_pipeline(StandardScaler(), Ridge())
            model.fit(rows[fitted], labels[fitted] / deviation)
            expected.append(np.abs(model.predict(rows[held_out]) * deviation - labels[held_out]))
        assert errors["z_score"] == pytest.approx(np.concatenate(expected).mean(), rel=1e-4)


def test_which_trainings_start_at_a_linear_model():
    for kind, settings, starts in [
        ("regression", {}, True),
        ("regression", {"loss": "huber"}, True),
        ("regression", {"loss": "poisson"}, False),
        ("regression", {"loss": "mean_absolute_percentage_error"}, False),
        ("binary", {}, True),
        ("binary", {"loss": "hinge"}, False),
        ("multiclass", {"loss": "sparse_categorical_crossentropy"}, True),
        ("regression", {"model": {}}, False),
        ("regression", {"model_fn": "user_model.build"}, False),
    ]:
        config = TrainerConfig(**{"model": {"linear": True}, **settings})
        context = ModelContext({}, None, None, "y", kind, 1, {}, config)
        assert has_linear_start(context) == starts


def test_workers_get_every_bit_of_the_chiefs_start():
    random = np.random.default_rng(0)
    start = LinearStart(LinearModel(random.normal(size=(9, 2)), np.array([1 / 3, -np.inf])), 1)
    again = LinearStart.from_json(json.loads(json.dumps(start.to_json())))
    assert again.scale == 1
    assert again.linear is not None
    np.testing.assert_array_equal(again.linear.kernel, start.linear.kernel)
    np.testing.assert_array_equal(again.linear.bias, start.linear.bias)
    nothing = LinearStart.from_json(json.loads(json.dumps(LinearStart(None, 0).to_json())))
    assert nothing == LinearStart(None, 0)


@pytest.mark.parametrize(
    ("label", "metric", "settings"),
    [
        (
            "generous",
            "binary_crossentropy",
            {"early_stopping": {}, "optimizer": {"learning_rate": 3.0}},
        ),
        ("hour_id", "mean_absolute_error", {"loss": "mse"}),
    ],
)
def test_a_training_starts_at_the_linear_baseline(fn_args, tmp_path, label, metric, settings):
    """With a learning rate of nearly 0, the model's metrics are those of the linear baseline.

    So are they where each epoch is worse and early stopping keeps the best weights.
    The label scale that was chosen is kept with the checkpoint.
    """
    settings = {"optimizer": {"name": "sgd", "learning_rate": 1e-12}, **settings}
    args = fn_args(
        label=label,
        epochs=1,
        global_batch_size=64,
        metrics=[metric],
        model={"linear": True},
        **settings,
    )
    evaluated = run_fn(args).metrics
    config = TrainerConfig(**args.custom_config["trainer"])
    data = open_data(args, config)
    summary = summarise(data.train, id_features=unsized_ids(data))
    context = model_context(config, data, summary)
    found = _compute_baselines(context, data, summary, list(context.feature_spec))
    assert evaluated[metric] == pytest.approx(found.baselines[1].metrics[metric], rel=1e-4)
    (record,) = (tmp_path / "run" / "checkpoints").glob("*/*.json")
    scale = json.loads(record.read_text()).get("label_scale")
    assert scale == ("z_score" if settings.get("loss") == "mse" else None)
