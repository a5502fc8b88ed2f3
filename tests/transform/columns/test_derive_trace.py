"""Operations of `derive` are named by the columns that they are for, and are what they were."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

TEXTS = ["1", "2", "30", "4"]
X = [1.0, None, 3.0, 4.0]
SCALED = {"name": "g", "scale": "z_score"}


@pytest.fixture
def derive(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], str]:
    """`derive(function)` puts the function where a spec can name it."""
    module = types.ModuleType("derive_trace_for_tests")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def add(function: Any) -> str:
        setattr(module, function.__name__, function)
        return f"{module.__name__}.{function.__name__}"

    return add


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
def test_an_error_inside_beam_names_the_step_and_the_derived_columns(
    run_transform: Any, derive: Any
) -> None:
    spec = {"derive": derive(durations), "groups": [{**SCALED, "columns": ["minutes", "double"]}]}
    with pytest.raises(ValueError, match="correctly convert string: three") as caught:
        run_transform(spec, {"text": ["1", "2", "three", "4"], "x": X})
    assert "{{node derive/minutes.trip_hours/StringToNumber}}" in str(caught.value)


@pytest.mark.slow
def test_what_is_derived_is_transformed_and_served(run_transform: Any, derive: Any) -> None:
    """Reference: NumPy; and what Beam wrote, bit for bit."""
    columns = ["minutes", "trip hours", "double", "same"]
    spec = {
        "derive": derive(durations),
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


def _operations(function: Any) -> set[str]:
    """Names of the operations that `function` makes of a sparse column x."""
    import tensorflow as tf

    from transform.columns.derive_trace import traced

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.sparse_placeholder(tf.float32, [None, None], name="x")
        inputs = {op.name for op in graph.get_operations()}
        found = traced(function, {"x": x, "unused": tf.compat.v1.placeholder(tf.int64, [None, 1])})
        assert all(tensor.graph is graph for tensor in found.values())
        made = {op.name for op in graph.get_operations()} - inputs
    return {name for name in made if not name.startswith("Placeholder")}


def test_each_operation_has_the_columns_that_need_it() -> None:
    import tensorflow as tf

    def function(inputs: dict[str, Any]) -> dict[str, Any]:
        root = tf.sqrt(tf.sparse.to_dense(inputs["x"])[:, 0], name="root")
        return {f"c{i}": tf.multiply(root, float(i), name=f"m{i}") for i in range(5)}

    names = _operations(function)
    assert {"derive/c0.c1.c2.and_2_more/root", "derive/c0/m0", "derive/c4/m4"} <= names
    assert all(name.startswith("derive/c") for name in names)


def test_a_column_keeps_the_shape_that_the_function_set() -> None:
    import tensorflow as tf

    from transform.columns.derive_trace import traced

    def function(inputs: dict[str, Any]) -> dict[str, Any]:
        column = tf.py_function(lambda x: x, [inputs["x"]], tf.float32)
        column.set_shape([None, 1])
        return {"column": column}

    with tf.Graph().as_default():
        found = traced(function, {"x": tf.compat.v1.placeholder(tf.float32, [None, 1])})
    assert found["column"].shape.as_list() == [None, 1]


def test_a_function_with_state_is_traced_where_it_is() -> None:
    """A lookup table cannot be copied from one graph to another: its operations are in `derive`."""
    import tensorflow as tf

    from transform.columns.derive_trace import traced

    pairs = tf.lookup.KeyValueTensorInitializer(["one", "two"], [1.0, 2.0])
    table = tf.lookup.StaticHashTable(pairs, -1.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def whole(text: Any) -> Any:
        return traced(lambda inputs: {"number": table.lookup(inputs["text"])}, {"text": text})

    np.testing.assert_array_equal(whole(tf.constant(["two", "x"]))["number"], [2.0, -1.0])
    operations = whole.get_concrete_function().graph.get_operations()
    (lookup,) = (op.name for op in operations if op.type.startswith("LookupTableFind"))
    assert lookup.startswith("derive/")
