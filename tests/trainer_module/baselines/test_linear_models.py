"""The linear baselines against scikit-learn on standardised numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from trainer_module.baselines.linear_models import Sample, _fit_logistic, fit_ridge, probabilities

ROWS = 400


def class_shares(rows, labels, weights, classes, floats):
    rows = csr_array(rows)
    linear = _fit_logistic(Sample(rows, labels, weights, floats), classes=classes)
    return probabilities(linear(rows))


@pytest.fixture
def random():
    return np.random.default_rng(3)


@pytest.fixture
def table(random):
    """(numbers, ids as 0/1 columns, weights); only the ridge decides between two equal columns."""
    numbers = random.normal(size=(ROWS, 6))
    numbers[:, 1] = numbers[:, 0]
    numbers[:, 2] = 1e6  # constant
    return numbers, np.eye(4)[random.integers(0, 4, ROWS)], random.uniform(0, 3, ROWS)


@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_regression_is_ridge_with_weights_of_mean_one(random, table, offset, with_ids):
    """Reference: Ridge(alpha=1) of standardised numbers, weights of mean 1; tolerance 1e-5."""
    numbers, ids, weights = table
    ids = ids if with_ids else ids[:, :0]
    labels = 5 + numbers @ random.normal(size=6) + ids.sum(1) + random.normal(size=ROWS) + offset
    share = weights / weights.mean()
    scaled = StandardScaler().fit_transform(numbers, sample_weight=share)
    reference = Ridge().fit(np.hstack([scaled, ids]), labels, share)
    rows = csr_array(np.hstack([numbers, ids]))
    predicted = fit_ridge(Sample(rows, labels, 7 * weights, 6))(rows)
    assert predicted.shape == (ROWS, 1)
    expected = reference.predict(np.hstack([scaled, ids]))
    np.testing.assert_allclose(predicted[:, 0], expected, rtol=1e-9, atol=1e-5)


def test_a_class_without_rows_has_probability_zero(random):
    rows = np.sort(random.normal(size=(ROWS, 1)), axis=0) * 100
    labels = np.where(np.arange(ROWS) > 150, 2, 0)  # separable
    shares = class_shares(rows, labels, np.ones(ROWS), 4, 1)
    assert (shares.argmax(axis=1) == labels).mean() > 0.98
    assert (shares[:, [1, 3]] == 0).all()
    one = class_shares(rows, np.full(ROWS, 1), np.ones(ROWS), 3, 1)
    assert one[:2].tolist() == [[0, 1, 0], [0, 1, 0]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("largest", [-4, 8, 30])
def test_columns_of_any_scale_are_fitted_as_well_as_by_newton(random, largest):
    """Reference: LogisticRegression by Newton's method on the same columns; loss + 1 % at most."""
    columns = random.normal(size=(ROWS, 5))
    score = columns @ random.normal(size=(5, 3)) * 2
    labels = (score + random.gumbel(size=(ROWS, 3))).argmax(axis=1)
    rows = (columns + 10) * 10.0 ** np.linspace(-2, largest, 5)
    reference = LogisticRegression(solver="newton-cg", max_iter=200).fit(rows, labels)
    expected = log_loss(labels, reference.predict_proba(rows))
    shares = class_shares(rows, labels, np.ones(ROWS), 3, 5)
    assert log_loss(labels, shares) <= 1.01 * expected
