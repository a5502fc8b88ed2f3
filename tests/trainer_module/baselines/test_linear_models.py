"""The linear baselines against scikit-learn's, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from trainer_module.baselines.linear_models import least_squares, log_softmax, logistic

ROWS = 400


@pytest.fixture
def random():
    return np.random.default_rng(3)


def made(random, columns=6):
    rows = random.normal(size=(ROWS, columns))
    rows[:, 1] = rows[:, 0]  # one too many: only the ridge decides between them
    rows[:, 2] = 1.0  # constant
    return rows, random.uniform(0, 3, ROWS)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_least_squares_are_those_of_ridge(random, offset):
    """Reference: Ridge(alpha=1) with weights of mean 1; tolerance 1e-9 relative."""
    rows, weights = made(random)
    labels = 5 + rows @ random.normal(size=6) + random.normal(size=ROWS) + offset
    reference = Ridge(alpha=1.0).fit(rows, labels, weights / weights.mean())
    found = least_squares(rows, labels, weights)
    np.testing.assert_allclose(found.scores(rows)[:, 0], reference.predict(rows), rtol=1e-9)
    unweighted = Ridge(alpha=1.0).fit(rows, labels)
    assert np.abs(found.scores(rows)[:, 0] - unweighted.predict(rows)).max() > 1e-3


@pytest.mark.parametrize("classes", [2, 4])
def test_logistic_is_that_of_scikit_learn(random, classes):
    """Reference: LogisticRegression; tolerance 1e-5 absolute."""
    rows, weights = made(random)
    labels = (rows @ random.normal(size=(6, classes)) + random.gumbel(size=(ROWS, classes))).argmax(
        1
    )
    found = logistic(rows, labels, weights, classes=classes)
    strength = 2.0 if classes == 2 else 1.0  # scikit-learn has one output for two classes
    reference = LogisticRegression(C=strength, tol=1e-9, max_iter=5000, solver="newton-cg")
    reference.fit(rows, labels, weights / weights.mean())
    ours = np.exp(log_softmax(found.scores(rows)))
    np.testing.assert_allclose(ours, reference.predict_proba(rows), atol=1e-5)


def test_separable_classes_and_a_class_without_rows_end(random):
    rows = np.sort(random.normal(size=(ROWS, 1)), axis=0) * 100
    labels = (np.arange(ROWS) > 150).astype(int)
    found = logistic(rows, labels, np.ones(ROWS), classes=3)
    shares = np.exp(log_softmax(found.scores(rows)))
    assert (shares.argmax(axis=1) == labels).mean() > 0.99
    assert shares[:, 2].max() < 0.02


def test_time_is_bounded(random):
    rows, weights = made(random)
    labels = (rows[:, 0] > 0).astype(int)
    none = logistic(rows, labels, weights, classes=2, most_seconds=-1.0)
    assert (none.weights == 0).all()
