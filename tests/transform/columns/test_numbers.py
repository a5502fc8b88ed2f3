"""Missing values of scaled columns in requests; the values of each scaler: scale/test_contract.py.

Bounds against NumPy; exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.numbers import clip  # noqa: E402
from transform.spec.group import Clip  # noqa: E402

NORMAL = [*np.random.default_rng(1).normal(3.0, 2.0, 70).astype(np.float32).tolist(), None]
COLUMNS = {
    **dict.fromkeys(("normal", "m_normal", "none_constant"), NORMAL),
    "promised": [float(i) for i in range(len(NORMAL))],
}
SPEC = {
    "groups": [
        {
            "name": "z",
            "columns": ["normal", "promised"],
            "scale": "z_score",
            "missing_indicator": True,
        },
        {"name": "m", "columns": "m_normal", "scale": "min_max"},
        {"name": "n", "columns": "none_constant", "impute": {"constant": -7.0}, "scale": "none"},
    ]
}


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    return run_transform(SPEC, COLUMNS, dense=("promised",), batch_size=37)


def test_an_empty_request_is_served_with_imputed_values(result: Any) -> None:
    """A batch without any value of any sparse column, as one poor request makes it."""
    rows = {"promised": tf.zeros([1, 1])}
    for name in set(COLUMNS) - set(rows):
        rows[name] = tf.SparseTensor(tf.zeros([0, 2], tf.int64), tf.zeros([0]), [1, 0])
    served = result.output.transform_raw_features(rows)
    packed = dict(zip(result.layout.names(), served["packed_float"].numpy()[0], strict=True))
    assert (packed["normal"], packed["normal_missing"], packed["none_constant"]) == (0.0, 1.0, -7.0)
    x = np.asarray(NORMAL[:-1])
    assert packed["m_normal"] == pytest.approx((x.mean() - x.min()) / np.ptp(x), abs=1e-6)


def test_a_request_without_a_promised_column_is_refused_by_name(result: Any) -> None:
    lacking = tf.train.Example.FromString(result.records[0])
    del lacking.features.feature["promised"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Feature: promised .*required"):
        result.raw([lacking.SerializeToString()])


def test_each_column_has_its_own_bounds() -> None:
    x = np.asarray([[-5.0, -5.0, -5.0, np.nan], [5.0, 5.0, 5.0, 5.0]])
    bounds = [None, Clip(min=0.0), Clip(max=1.0), Clip(min=-1.0, max=1.0)]
    found = clip(tf.constant(x), bounds).numpy()
    np.testing.assert_array_equal(found, [[-5.0, 0.0, -5.0, np.nan], [5.0, 5.0, 1.0, 1.0]])
