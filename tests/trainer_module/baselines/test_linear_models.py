"""The linear baselines against models of scikit-learn."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler

from trainer_module.baselines.design_matrix import DesignMatrix
from trainer_module.baselines.linear_models import fit_logistic, fit_ridge, probabilities

ROWS = 400


def dense(rows):
    return DesignMatrix(rows, csr_array((len(rows), 0)))


@pytest.fixture
def random():
    return np.random.default_rng(3)


def made(random, columns=6):
    rows = random.normal(size=(ROWS, columns))
    rows[:, 1] = rows[:, 0]  # one too many: only the ridge decides between them
    rows[:, 2] = 1.0  # constant
    return rows, random.uniform(0, 3, ROWS)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_regression_is_ridge_with_weights_of_mean_one(random, offset):
    """Reference: Ridge(alpha=1) with weights of mean 1; tolerance 1e-9, relative above 1."""
    rows, weights = made(random)
    labels = 5 + rows @ random.normal(size=6) + random.normal(size=ROWS) + offset
    reference = Ridge(alpha=1.0).fit(rows, labels, weights / weights.mean())
    found = fit_ridge(dense(rows), labels, 7 * weights)(dense(rows))
    assert found.shape == (ROWS, 1)
    np.testing.assert_allclose(found[:, 0], reference.predict(rows), rtol=1e-9, atol=1e-9)
    unweighted = Ridge(alpha=1.0).fit(rows, labels)
    assert np.abs(found[:, 0] - unweighted.predict(rows)).max() > 1e-3


@pytest.mark.parametrize("classes", [2, 4])
def test_classification_is_logistic_regression_with_weights_of_mean_one(random, classes):
    """Reference: LogisticRegression solved to 1e-9; tolerance 1e-4 of probabilities."""
    rows, weights = made(random)
    labels = (rows @ random.normal(size=(6, classes)) + random.gumbel(size=(ROWS, classes))).argmax(
        1
    )
    found = probabilities(
        fit_logistic(dense(rows), labels, 7 * weights, classes=classes)(dense(rows))
    )
    reference = LogisticRegression(tol=1e-9, max_iter=5000, solver="newton-cg")
    reference.fit(rows, labels, weights / weights.mean())
    np.testing.assert_allclose(found, reference.predict_proba(rows), atol=1e-4)
    unweighted = LogisticRegression().fit(rows, labels).predict_proba(rows)
    assert np.abs(found - unweighted).max() > 1e-3


def test_a_class_without_rows_has_probability_zero(random):
    rows = np.sort(random.normal(size=(ROWS, 1)), axis=0) * 100
    labels = np.where(np.arange(ROWS) > 150, 2, 0)  # separable
    shares = probabilities(fit_logistic(dense(rows), labels, np.ones(ROWS), classes=4)(dense(rows)))
    assert (shares.argmax(axis=1) == labels).mean() > 0.99
    assert shares.shape == (ROWS, 4)
    assert (shares[:, [1, 3]] == 0).all()
    one = probabilities(
        fit_logistic(dense(rows), np.full(ROWS, 1), np.ones(ROWS), classes=3)(dense(rows[:2]))
    )
    assert one.tolist() == [[0, 1, 0], [0, 1, 0]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("largest", [-4, 0, 2, 4, 8, 30])
def test_columns_of_any_scale_are_fitted_as_well_as_by_newton(random, classes, largest):
    """Reference: LogisticRegression by Newton's method on the same columns; loss + 1 % at most."""
    columns = random.normal(size=(ROWS, 5))
    score = columns @ random.normal(size=(5, classes)) * 2
    labels = (score + random.gumbel(size=(ROWS, classes))).argmax(axis=1)
    flag = (random.uniform(size=(ROWS, 1)) < 0.5).astype(float)
    scales = 10.0 ** np.linspace(-2, largest, 5)
    rows = np.hstack([(columns + 10) * scales, flag])
    found = probabilities(
        fit_logistic(dense(rows), labels, np.ones(ROWS), classes=classes)(dense(rows))
    )
    reference = LogisticRegression(solver="newton-cg", max_iter=200).fit(rows, labels)
    expected = log_loss(labels, reference.predict_proba(rows))
    assert log_loss(labels, found) <= 1.01 * expected


def test_without_scipy_the_error_names_the_extra(random, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs scipy.*tfx-largebatch\[tfx\]"):
        fit_ridge(dense(random.normal(size=(9, 2))), np.arange(9.0), np.ones(9))


def tables():
    """Name -> (columns, labels), of scikit-learn and made up; columns of a text-like width too."""
    found = {
        name: getattr(datasets, f"load_{name}")(return_X_y=True)
        for name in ("iris", "wine", "breast_cancer", "digits", "diabetes")
    }
    random = np.random.default_rng(5)
    made_up = {
        "rare": {"weights": [0.95]},
        "wide": {"n_samples": 150, "n_features": 200},
        "redundant": {"n_redundant": 15},
        "five classes": {"n_classes": 5, "n_informative": 6},
        "noise": {"flip_y": 1.0},
    }
    for name, options in made_up.items():
        options = {"n_samples": 600, "n_features": 20, **options}
        found[name] = datasets.make_classification(**options, random_state=0)
    rows, labels = datasets.make_regression(400, 30, noise=20.0, random_state=0)
    found["regression"] = rows, labels
    found["heavy tails"] = np.exp(2 * rows), labels + 100 * random.standard_t(2, 400)
    return found


TABLES = tables()


@pytest.mark.parametrize("name", TABLES)
def test_held_out_metrics_are_within_two_percent_of_scikit_learn(name):
    """References: Ridge() and LogisticRegression() as they come, but for enough iterations."""
    rows, labels = TABLES[name]
    rows = StandardScaler().fit_transform(rows)
    order = np.random.default_rng(0).permutation(len(labels))
    train, held_out = np.split(order, [len(order) * 3 // 4])
    weights = np.ones(len(train))
    truth = labels[held_out]
    if np.issubdtype(labels.dtype, np.floating) and len(np.unique(labels)) > 20:
        ours = fit_ridge(dense(rows[train]), labels[train], weights)(dense(rows[held_out]))[:, 0]
        theirs = Ridge().fit(rows[train], labels[train]).predict(rows[held_out])
        for power in (1, 2):
            error = (np.abs(each - truth) ** power for each in (ours, theirs))
            mine, reference = (each.mean() for each in error)
            assert mine <= 1.02 * reference
        return
    labels = labels.astype(int)
    classes = labels.max() + 1
    ours = probabilities(
        fit_logistic(dense(rows[train]), labels[train], weights, classes=classes)(
            dense(rows[held_out])
        )
    )
    reference = LogisticRegression(max_iter=5000).fit(rows[train], labels[train])
    theirs = reference.predict_proba(rows[held_out])
    truth = labels[held_out]
    names = np.arange(classes)
    assert log_loss(truth, ours, labels=names) <= 1.02 * log_loss(truth, theirs, labels=names)
    right = [(each.argmax(axis=1) == truth).mean() for each in (ours, theirs)]
    assert right[0] >= 0.98 * right[1]
    if classes == 2:
        assert roc_auc_score(truth, ours[:, 1]) >= 0.98 * roc_auc_score(truth, theirs[:, 1])
