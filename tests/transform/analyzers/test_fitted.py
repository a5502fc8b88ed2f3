"""What is kept in a graph is read from its saved form by names, bit for bit; and by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from shared_core.fitted import Fitted, fitted_numbers  # noqa: E402
from transform.analyzers.fitted import PRESENT, FittedColumn, keep, keep_record  # noqa: E402
from transform.analyzers.moments import STATISTICS, FittedStatistics  # noqa: E402
from transform.chains import _fitted_columns  # noqa: E402

NAMES = ("a", "ü b")


class _Pair(NamedTuple):
    low: Any
    high: Any


class _Other(NamedTuple):
    high: Any
    low: Any


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], Any]], str]:
    """`saved(function)`: the folder of a transform graph that computes what it returns."""

    def save(function: Callable[[], Any]) -> str:
        module = tf.Module()
        module.transform_fn = tf.function(function).get_concrete_function()  # type: ignore
        folder = tmp_path_factory.mktemp("saved")
        tf.saved_model.save(module, str(folder / "transform_fn"))
        return str(folder)

    return save


@pytest.fixture(scope="module")
def kept(saved: Any) -> dict[str, Fitted]:
    def function() -> Any:
        low, high = (tf.constant(each, tf.float64) for each in ([0.1, 0.2], [1.0, 2.0]))
        pair = keep_record(_Pair(low, high), "pair", NAMES)
        with tf.control_dependencies([keep(tf.constant(["x", "y"]), "words", NAMES)]):
            return pair.low + pair.high

    return {each.what: each for each in fitted_numbers(saved(function))}


def test_a_record_comes_back_by_its_fields(kept: dict[str, Fitted]) -> None:
    pair = kept["pair"]
    assert (pair.fields, pair.columns) == (("low", "high"), NAMES)
    by_column = {name: pair.record(_Pair, values) for name, values in pair.by_column().items()}
    assert by_column == {"a": _Pair(0.1, 1.0), "ü b": _Pair(0.2, 2.0)}
    assert kept["words"].by_column() == {"a": b"x", "ü b": b"y"}
    with pytest.raises(ValueError, match=r"holds pair of \('low', 'high'\), not of \('high'"):
        pair.record(_Other, pair.values)


def test_a_record_of_more_axes_has_its_columns_last() -> None:
    values = np.arange(12.0).reshape(2, 3, 2)  # fields, keys, columns
    fitted = Fitted("keys", ("low", "high"), NAMES, values)
    record = fitted.record(_Pair, fitted.by_column()["ü b"])
    assert record.low.tolist() == values[0, :, 1].tolist()
    assert record.high.tolist() == values[1, :, 1].tolist()


def test_numbers_of_an_older_version_are_refused():
    """Records had no names of fields: their first axis was not that of the columns."""
    older = Fitted("statistics", (), ("fare", "miles", "minutes"), np.zeros([2, 3]))
    with pytest.raises(ValueError, match="statistics of 2 columns, not of 3: another version"):
        older.by_column()


FITTED_A = FittedStatistics(4.0, 1.0, 0.5, 0.0, 2.0)  # type: ignore[arg-type]
FITTED_B = FittedStatistics(3.0, 2.0, 0.25, -1.0, 5.0)  # type: ignore[arg-type]


def test_each_column_has_its_own(saved: Any) -> None:
    def function() -> Any:
        both = (tf.constant(pair, tf.float64) for pair in zip(FITTED_A, FITTED_B, strict=True))
        statistics = keep_record(FittedStatistics(*both), STATISTICS, ["a", "b"])
        filling = keep(tf.constant([1.5, 2.5], tf.float64), "filling", ["a", "b"])
        with tf.control_dependencies([keep(tf.constant([7]), PRESENT, ["word"])]):
            return statistics.mean + filling

    found = _fitted_columns(saved(function))
    assert (found["a"].statistics, found["b"].statistics) == (FITTED_A, FITTED_B)
    assert found["b"].values == {"filling": 2.5}
    assert found["b"].order is None
    counts = {name: each.count for name, each in found.items()}
    assert counts == {"a": 4, "b": 3, "word": 7}
    assert FittedColumn().count is None
