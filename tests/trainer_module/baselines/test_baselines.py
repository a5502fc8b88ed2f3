"""Baselines of a small Transform output against NumPy and scikit-learn on the same rows."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
from sklearn.linear_model import LogisticRegression

from trainer_module import TrainerConfig, run_fn
from trainer_module.baselines.baselines import (
    _compute_baselines,
    _fit_linear,
    _Scores,
    _weighted_median,
    write_baselines,
)
from trainer_module.baselines.linear_models import Columns, Sample
from trainer_module.data.input_pipeline import summarise
from trainer_module.model.data_context import model_context, unsized_ids
from trainer_module.tfx.data import open_data


def opened(args, **settings):
    """(context, data, summary, inputs) as run_fn has them."""
    config = TrainerConfig(**settings)
    data = open_data(args, config)
    summary = summarise(data.train, id_features=unsized_ids(data))
    context = model_context(config, data, summary)
    return context, data, summary, sorted(context.feature_spec)


def rows_of(data, files=None):
    examples = dataclasses.replace(data.train, files=files or data.train.files)
    parts = list(examples.batches(10_000).as_numpy_iterator())
    assert len(parts) == 1
    return parts[0]


def test_metrics_of_two_classes(fn_args):
    """Reference: LogisticRegression on one-hot ids; tolerance 1e-4, of AUC 1e-3."""
    settings = {"label": "generous"}
    context, data, summary, inputs = opened(fn_args(), **settings)
    found = _compute_baselines(context, data, summary, inputs)
    train_x, train_y = rows_of(data)
    eval_x, eval_y = rows_of(data, data.eval_files)
    assert (found.fitted_rows, found.eval_rows) == (len(train_y), len(eval_y))
    constant, linear = found.baselines
    prior = train_y.mean()
    assert constant.metrics["auc"] == pytest.approx(0.5)
    assert constant.metrics["binary_accuracy"] == pytest.approx(
        ((prior > 0.5) == eval_y).mean(), abs=1e-12
    )
    expected = sklearn_metrics.log_loss(eval_y[:, 0], np.full(len(eval_y), prior))
    assert constant.metrics["binary_crossentropy"] == pytest.approx(expected, rel=1e-6)

    def columns(x):
        sizes = context.id_sizes
        ids = [np.eye(sizes[n][1])[x[n][:, 0] - sizes[n][0]] for n in ("company_id", "hour_id")]
        return np.hstack([x["fare_scaled"], *ids])

    for name in ("company_id", "hour_id"):
        eval_x[name] = np.minimum(eval_x[name], sum(context.id_sizes[name]) - 1)
    reference = LogisticRegression(tol=1e-9, max_iter=5000, solver="newton-cg")
    reference.fit(columns(train_x), train_y[:, 0])
    predicted = reference.predict_proba(columns(eval_x))[:, 1]
    auc = sklearn_metrics.roc_auc_score(eval_y[:, 0], predicted)
    assert linear.metrics["auc"] == pytest.approx(auc, abs=1e-3)  # 10,000 thresholds
    assert linear.metrics["binary_crossentropy"] == pytest.approx(
        sklearn_metrics.log_loss(eval_y[:, 0], predicted), rel=1e-4
    )


def test_metrics_of_a_number_with_row_weights(fn_args):
    """Reference: weighted mean, median and R² by NumPy and scikit-learn; tolerance 1e-6."""
    settings = {"label": "fare_scaled", "weight": "hour_id", "loss": "mse"}
    context, data, summary, inputs = opened(fn_args(), **settings)
    assert context.label_kind == "regression"
    found = _compute_baselines(context, data, summary, inputs)
    _, train_y, train_w = rows_of(data)
    _, eval_y, eval_w = rows_of(data, data.eval_files)
    y, w = train_y[:, 0].astype(np.float64), train_w.astype(np.float64)
    truth = eval_y[:, 0].astype(np.float64)
    mean, constant = np.average(y, weights=w), found.baselines[0].metrics
    median = np.repeat(y, train_w.astype(int))
    for name, value in {
        "mean_absolute_error": np.average(np.abs(truth - np.median(median)), weights=eval_w),
        "mean_squared_error": np.average((truth - mean) ** 2, weights=eval_w),
        "root_mean_squared_error": np.sqrt(np.average((truth - mean) ** 2, weights=eval_w)),
        "r2": sklearn_metrics.r2_score(truth, np.full(len(truth), mean), sample_weight=eval_w),
    }.items():
        assert constant[name] == pytest.approx(value, rel=1e-6), name
    assert abs(mean - y.mean()) > 1e-4
    assert found.baselines[1].metrics["r2"] < 1


def test_metrics_of_several_classes_and_the_size_limit(fn_args, monkeypatch):
    settings = {"label": "company_id", "loss": "sparse_categorical_crossentropy"}
    context, data, summary, inputs = opened(fn_args(), **settings)
    found = _compute_baselines(context, data, summary, inputs)
    _, train_y = rows_of(data)
    _, eval_y = rows_of(data, data.eval_files)
    shares = np.bincount(train_y[:, 0], minlength=context.outputs) / len(train_y)
    constant, linear = (each.metrics for each in found.baselines)
    assert constant["sparse_categorical_accuracy"] == np.mean(eval_y == shares.argmax())
    expected = -np.log(shares[eval_y[:, 0]]).mean()
    assert constant["sparse_categorical_crossentropy"] == pytest.approx(expected, rel=1e-6)
    assert linear["sparse_categorical_accuracy"] > constant["sparse_categorical_accuracy"]
    monkeypatch.setattr("trainer_module.baselines.linear_models._MAX_WEIGHTS", 1)
    bounded = _compute_baselines(context, data, summary, inputs)
    assert [each.name for each in bounded.baselines] == ["constant"]
    assert "columns and" in bounded.left_out
    assert bounded.baselines[0] == found.baselines[0]


def test_ids_beyond_the_cap_share_a_column_and_rows_are_sampled(fn_args, monkeypatch):
    monkeypatch.setattr("trainer_module.baselines.linear_models._MAX_COLUMNS", 12)
    monkeypatch.setattr("trainer_module.baselines.linear_models.MAX_ROWS", 100)
    monkeypatch.setattr("trainer_module.baselines.linear_models._MIN_ROWS", 100)
    found = _compute_baselines(*opened(fn_args(), label="generous"))
    assert 60 <= found.fitted_rows <= 100
    # The fare, 4 of 6 companies and of 25 hours.
    assert "on 9 columns" in found.baselines[1].is_what
    assert found.baselines[1].metrics["auc"] > 0.5


def test_run_fn_writes_baselines_only_on_request(fn_args):
    args = fn_args(label="generous", global_batch_size=64, steps=1, model={"hidden_units": [4]})
    run_fn(args)
    file = Path(args.model_run_dir) / "baselines.json"
    assert not file.exists()
    args.custom_config["baselines"] = "eval"
    run_fn(args)
    written = json.loads(file.read_text())
    assert [each["name"] for each in written["baselines"]] == ["constant", "linear"]
    assert written["baselines"][1]["metrics"]["auc"] > 0.5


def test_baselines_that_cannot_be_computed_are_a_warning(fn_args, tmp_path, caplog, monkeypatch):
    _, data, summary, inputs = opened(fn_args(), label="generous")
    folder, config = str(tmp_path / "run"), TrainerConfig(label="generous")
    write_baselines(folder, data._replace(eval_files=()), summary, config, inputs)
    assert "Computed no baselines: the examples have no eval split" in caplog.text
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    write_baselines(folder, data, summary, config, inputs)
    assert "uv pip install 'tfx-largebatch[tfx]'" in caplog.text
    assert not (tmp_path / "run").exists()


def test_rows_without_a_usable_label_or_weight_are_not_fitted(fn_args):
    context, _, _, inputs = opened(fn_args(), label="generous")
    columns = Columns(context, inputs)
    features = {
        "fare_scaled": np.linspace(-1, 1, 6, dtype=np.float32)[:, None],
        "company_id": np.zeros((6, 1), np.int64),
        "hour_id": np.zeros((6, 1), np.int64),
    }
    labels = np.array([0, 0, 1, 1, -1, 5])
    weights = np.array([1.0, 1, 1, 1, 1, 1])
    sample = Sample(columns.matrix(features, 6), labels, weights, columns.floats)
    kept = Sample(*(each[:4] for each in sample[:3]), columns.floats)
    found, expected = (_fit_linear(context, columns, each)(features, 6) for each in (sample, kept))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=r"trainer.label='generous'"):
        _fit_linear(context, columns, sample._replace(weights=np.array([0.0, 0, 0, 0, 1, 1])))


def test_undefined_metrics_are_none():
    one = _Scores("binary")
    one.add(np.zeros(3), np.full((3, 1), 0.4), np.ones(3))
    one.add(np.ones(1), np.full((1, 1), 0.4), np.zeros(1))
    assert one.results()["auc"] is None
    assert one.results()["auc_precision_recall"] is None
    assert one.results()["binary_accuracy"] == 1.0
    invalid = _Scores("multiclass")
    invalid.add(np.array([0, -1]), np.full((2, 3), 1 / 3), np.ones(2))
    assert set(invalid.results().values()) == {None}
    same = _Scores("regression")
    same.add(np.full(3, 7.0), np.zeros((3, 1)), np.ones(3))
    assert same.results()["r2"] is None
    assert same.results()["mean_absolute_error"] == 7.0


def test_r2_of_large_labels_does_not_cancel():
    """Reference: scikit-learn in float64, of labels about 1e9 that differ by 1; 1e-6 relative."""
    random = np.random.default_rng(0)
    labels = 1e9 + random.normal(size=500)
    predictions = labels + 0.5 * random.normal(size=500)
    weights = random.uniform(0, 2, 500)
    scores = _Scores("regression")
    for part in np.split(np.arange(500), 5):
        scores.add(labels[part], predictions[part, None], weights[part])
    expected = sklearn_metrics.r2_score(labels, predictions, sample_weight=weights)
    assert scores.results()["r2"] == pytest.approx(expected, rel=1e-6)


def test_median_of_weighted_rows():
    for values, weights, median in [
        ([3.0, 1, 2], [1.0, 1, 1], 2),
        ([4.0, 1, 2, 3], [1.0, 1, 1, 1], 2.5),
        ([1.0, 9], [3.0, 1], 1),
    ]:
        assert _weighted_median(np.array(values), np.array(weights) / sum(weights)) == median
