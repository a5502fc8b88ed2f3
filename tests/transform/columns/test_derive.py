"""The user's function: found, called, and what its columns rest on.

Derived columns are transformed and served, and an operation that fails names `derive`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tensorflow_metadata.proto.v0 import schema_pb2  # noqa: E402

from transform.columns.derive import (  # noqa: E402
    _load,
    _raw_sources,
    derived_columns,
    derived_types,
    refuse_leaks,
)

MODULE = "derive_for_derive_tests"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], str]:
    module = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)

    def add(function: Any) -> str:
        module.f = function  # type: ignore[attr-defined]
        return f"{MODULE}.f"

    return add


def _schema() -> schema_pb2.Schema:
    schema = schema_pb2.Schema()
    schema.feature.add(name="fare", type=schema_pb2.FLOAT)
    schema.feature.add(name="town", type=schema_pb2.BYTES)
    return schema


def test_types_come_from_a_trace(named: Any) -> None:
    path = named(lambda inputs: {"double": tf.sparse.to_dense(inputs["fare"]) * 2.0})
    assert derived_types(path, _schema()) == {"double": "float"}


def test_errors_of_a_function_name_it(named: Any) -> None:
    for function, message in [
        (lambda inputs: [1], "returned list; return a dict of new columns"),
        (lambda inputs: {"fare": 1}, "returned column 'fare', which the data has already"),
        (lambda inputs: inputs["fair"], "wants column 'fair' that the data lacks"),
        (lambda inputs: 1 / 0, "failed: ZeroDivisionError"),
    ]:
        with pytest.raises(ValueError, match=message):
            derived_columns(named(function), {"fare": tf.constant([1.0])})


def test_a_wrong_path_is_refused(named: Any) -> None:
    named(len)
    with pytest.raises(ValueError, match="has no function 'g'; it has: f"):
        _load(f"{MODULE}.g")
    with pytest.raises(ValueError, match="cannot be imported: ModuleNotFoundError"):
        _load("no_such_module_of_ours.f")


def test_a_feature_must_not_rest_on_the_labels_columns() -> None:
    with tf.Graph().as_default():
        inputs = {name: tf.compat.v1.placeholder(tf.float32, [None]) for name in ("tips", "fare")}
        columns = {**inputs, "ratio": inputs["tips"] / inputs["fare"], "twice": inputs["fare"] * 2}
        assert _raw_sources([columns["ratio"]], inputs) == {"tips", "fare"}
        refuse_leaks(["twice"], columns, inputs, {"tips"})
        with pytest.raises(ValueError, match="'ratio' is computed from 'tips', which is in label"):
            refuse_leaks(["twice", "ratio"], columns, inputs, {"tips"})


TEXTS = ["1", "2", "30", "4"]
X = [1.0, None, 3.0, 4.0]
SCALED = {"name": "g", "scale": "z_score"}


def durations(inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    from transform import dense_numbers, dense_texts

    seconds = tf.strings.to_number(dense_texts(inputs["text"], "text"))
    return {
        "minutes": seconds / 60.0,
        "trip hours": seconds / 3600.0,
        "double": dense_numbers(inputs["x"]) * 2.0,
        "same": inputs["x"],
    }


@pytest.mark.slow
def test_an_error_inside_beam_names_derive_and_the_operation(
    run_transform: Any, named: Any
) -> None:
    spec = {"derive": named(durations), "groups": [{**SCALED, "columns": ["minutes", "double"]}]}
    with pytest.raises(ValueError, match="correctly convert string: three") as caught:
        run_transform(spec, {"text": ["1", "2", "three", "4"], "x": X})
    assert "{{node derive/StringToNumber}}" in str(caught.value)


@pytest.mark.slow
def test_what_is_derived_is_transformed_and_served(run_transform: Any, named: Any) -> None:
    """Reference: NumPy; and what Beam wrote, bit for bit."""
    columns = ["minutes", "trip hours", "double", "same"]
    spec = {
        "derive": named(durations),
        "groups": [{**SCALED, "columns": columns}],
    }
    result = run_transform(spec, {"text": TEXTS, "x": X})
    seconds = np.asarray(TEXTS, np.float64)
    expected = (seconds - seconds.mean()) / seconds.std()
    for name in columns[:2]:
        np.testing.assert_allclose(result.column(name), expected, rtol=1e-6)
    present = np.asarray([2.0, 6.0, 8.0])
    filled = np.asarray([2.0, present.mean(), 6.0, 8.0])
    expected = (filled - present.mean()) / present.std()
    np.testing.assert_allclose(result.column("double"), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(result.column("same"), expected, rtol=1e-6, atol=1e-7)
    served = result.output.transform_features_layer()(result.raw())
    np.testing.assert_array_equal(served["packed_float"], result.written["packed_float"])
