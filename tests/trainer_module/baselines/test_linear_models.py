"""The linear baselines against models of scikit-learn."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from trainer_module.baselines.design_matrix import DesignMatrix
from trainer_module.baselines.linear_models import fit_logistic, fit_ridge, probabilities

ROWS = 400


def dense(rows):
    return DesignMatrix(rows, csr_array((len(rows), 0)))


def class_shares(rows, labels, weights, classes, asked=None):
    """Probabilities of the classes, for the same rows or others."""
    fitted = fit_logistic(dense(rows), labels, weights, classes=classes)
    return probabilities(fitted(dense(rows if asked is None else asked)))


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
    found = class_shares(rows, labels, 7 * weights, classes)
    reference = LogisticRegression(tol=1e-9, max_iter=5000, solver="newton-cg")
    reference.fit(rows, labels, weights / weights.mean())
    np.testing.assert_allclose(found, reference.predict_proba(rows), atol=1e-4)
    unweighted = LogisticRegression().fit(rows, labels).predict_proba(rows)
    assert np.abs(found - unweighted).max() > 1e-3


def test_a_class_without_rows_has_probability_zero(random):
    rows = np.sort(random.normal(size=(ROWS, 1)), axis=0) * 100
    labels = np.where(np.arange(ROWS) > 150, 2, 0)  # separable
    shares = class_shares(rows, labels, np.ones(ROWS), 4)
    assert (shares.argmax(axis=1) == labels).mean() > 0.99
    assert shares.shape == (ROWS, 4)
    assert (shares[:, [1, 3]] == 0).all()
    one = class_shares(rows, np.full(ROWS, 1), np.ones(ROWS), 3, rows[:2])
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
    found = class_shares(rows, labels, np.ones(ROWS), classes)
    reference = LogisticRegression(solver="newton-cg", max_iter=200).fit(rows, labels)
    expected = log_loss(labels, reference.predict_proba(rows))
    assert log_loss(labels, found) <= 1.01 * expected  # fails for NaN


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
def test_the_objective_is_at_most_that_of_scikit_learn(name):
    """References: Ridge() and LogisticRegression() with enough iterations; 1e-6 relative."""
    rows, labels = TABLES[name]
    rows, weights = StandardScaler().fit_transform(rows), np.ones(len(labels))
    if np.issubdtype(labels.dtype, np.floating) and len(np.unique(labels)) > 20:
        theirs = Ridge().fit(rows, labels)
        ours = fit_ridge(dense(rows), labels, weights)
        found, expected = (
            np.sum((labels - rows @ np.ravel(kernel) - bias) ** 2) + np.sum(kernel**2)
            for kernel, bias in (ours, (theirs.coef_, theirs.intercept_))
        )
        assert found <= expected * (1 + 1e-6)
        return
    labels = labels.astype(int)
    theirs = LogisticRegression(max_iter=5000).fit(rows, labels)
    ours = fit_logistic(dense(rows), labels, weights, classes=labels.max() + 1)
    kernel = ours.kernel if len(theirs.classes_) > 2 else np.diff(ours.kernel)
    found, expected = (
        log_loss(labels, shares, normalize=False) + np.sum(coefficients**2) / 2
        for shares, coefficients in (
            (probabilities(ours(dense(rows))), kernel),
            (theirs.predict_proba(rows), theirs.coef_),
        )
    )
    assert found <= expected * (1 + 1e-6)


def test_products_of_dense_and_sparse_columns(random):
    """Reference: the dense array in NumPy. A row may have the same term twice, and empty rows."""
    entries = random.integers(0, 9, (2, 60))
    sparse = coo_array((random.normal(size=60), entries), shape=(9, 9)).tocsr()
    matrix = DesignMatrix(random.normal(size=(9, 2)), sparse)
    array, weights = matrix.to_array(), random.uniform(size=9)
    kernel, rows = random.normal(size=(11, 3)), np.array([4, 0, 8])
    np.testing.assert_allclose(matrix @ kernel, array @ kernel)
    np.testing.assert_allclose(matrix.transposed_matmul(weights), array.T @ weights)
    np.testing.assert_allclose(matrix.gram(weights), (array.T * weights) @ array)
    np.testing.assert_array_equal(matrix[rows].to_array(), array[rows])
    np.testing.assert_array_equal(matrix.without_last(3).to_array(), array[:, :-3])
    both = DesignMatrix.concatenate([matrix, matrix[rows]])
    np.testing.assert_array_equal(both.to_array(), np.concatenate([array, array[rows]]))
