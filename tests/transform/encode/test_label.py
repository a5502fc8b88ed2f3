"""Label and weight: what is written, what is refused, and what serving needs."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

ROWS = 120
NAN = float("nan")
X = [float(i % 11) for i in range(ROWS)]
GROUPS = [{"name": "x", "columns": "x", "scale": "z_score"}]


def _spec(**fields: Any) -> dict[str, Any]:
    return {"groups": GROUPS, **fields}


@pytest.fixture(scope="module")
def derive_module() -> Iterator[str]:
    """A module with derive functions, as a user's project has one."""
    import tensorflow as tf

    from transform import dense_numbers

    def tip(inputs: Any) -> Any:
        tips, x = dense_numbers(inputs["tips"]), dense_numbers(inputs["x"])
        return {"tipped": tf.cast(tips > 0.2 * x, tf.int64)}

    def leak(inputs: Any) -> Any:
        return {**tip(inputs), "clever": dense_numbers(inputs["tips"]) * 2.0}

    module = types.ModuleType("derive_for_tests")
    module.tip, module.leak = tip, leak  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    yield module.__name__
    del sys.modules[module.__name__]


@pytest.fixture(scope="module")
def tipped(run_transform: Any, derive_module: str) -> Any:
    rng = np.random.default_rng(3)
    columns = {
        "x": X,
        "tips": [None if v < 0.1 else float(np.float32(v * 4)) for v in rng.random(ROWS)],
        "importance": [float(np.float32(v)) for v in rng.random(ROWS)],
        "note": [f"row {i}" for i in range(ROWS)],
    }
    spec = _spec(
        derive=f"{derive_module}.tip",
        label={"column": "tipped", "kind": "binary", "sources": ["tips"]},
        weight="importance",
        passthrough=["note"],
    )
    result = run_transform(spec, columns, dense=("x",), batch_size=16)
    return result, columns


def test_binary_label_weight_and_passthrough_are_written(tipped: Any) -> None:
    result, columns = tipped
    tips = np.asarray([t or 0.0 for t in columns["tips"]])
    np.testing.assert_array_equal(
        result.written["tipped"][:, 0], (tips > 0.2 * np.asarray(X)).astype(np.float32)
    )
    assert result.written["tipped"].dtype == np.float32
    np.testing.assert_array_equal(
        result.written["importance"][:, 0], np.float32(columns["importance"])
    )
    assert [note.decode() for note in result.written["note"][:, 0]] == columns["note"]
    layout = result.layout
    assert (layout.label.name, layout.label.kind, layout.label.classes) == ("tipped", "binary", 2)
    assert (layout.weight, layout.passthrough) == ("importance", ("note",))


def test_the_text_of_a_bool_is_a_positive_value_of_ints() -> None:
    """CSV reads `True` as 1: a configuration that names it holds."""
    for positive, expected in [
        ("True", [1, 0]),
        ("true", [1, 0]),
        ("FALSE", [0, 1]),
        (1, [1, 0]),
        (0, [0, 1]),
    ]:
        import tensorflow as tf

        from transform.encode.label import _binary_of
        from transform.resolve.select import _check_label_type
        from transform.spec.features import Label

        label = Label(column="y", kind="binary", positive=positive)
        _check_label_type(label, "int")
        found = _binary_of({"y": tf.constant([[1], [0]], tf.int64)}, label, False)
        assert found.numpy()[:, 0].tolist() == expected
    # A float column holds float32(0.1), which is not 0.1.
    label = Label(column="y", kind="binary", positive=0.1)
    columns = {"y": tf.constant([[0.1], [0.7], [np.nan]], tf.float32)}
    np.testing.assert_array_equal(_binary_of(columns, label, False), [[1.0], [0.0], [np.nan]])


def test_serving_needs_no_label_columns(tipped: Any) -> None:
    result, _ = tipped
    raw = result.raw(without=("tips", "importance", "note"))
    for transformed in (
        result.output.transform_raw_features(raw),
        result.output.transform_features_layer()(raw),
    ):
        assert set(transformed) == {"packed_float", "packed_missing"}
        np.testing.assert_array_equal(
            transformed["packed_float"].numpy(), result.written["packed_float"]
        )


def test_a_feature_derived_from_a_label_column_is_refused(
    run_transform: Any, derive_module: str
) -> None:
    spec = {
        "derive": f"{derive_module}.leak",
        "groups": [{"name": "x", "columns": ["x", "clever"], "scale": "z_score"}],
        "label": {"column": "tipped", "kind": "binary", "sources": ["tips"]},
    }
    with pytest.raises(ValueError, match="feature 'clever' is computed from 'tips'"):
        run_transform(spec, {"x": X, "tips": X}, dense=("x",))


def _label_of(analyze: Any, kind: Any, values: list[int]) -> Any:
    """The output for whole numbers that are analyzed in two shards."""
    import tensorflow as tf

    from transform import Label
    from transform.encode.label import label_output

    def output(rows: np.ndarray) -> Any:
        columns = {"y": tf.constant(rows[:, np.newaxis], tf.int64)}
        return label_output(columns, Label(column="y", kind=kind))

    rows = np.asarray(values)
    return analyze(output, np.array_split(rows, 2), rows)


def test_whole_numbers_keep_every_bit(analyze: Any) -> None:
    """Beyond 2^53, where float64 has even numbers alone; reference: the int64 values."""
    values = [2**53 + i for i in range(ROWS)]
    found = _label_of(analyze, "regression", values)
    assert found.classes is None
    written = found.values.numpy()
    assert written.dtype == np.int64
    assert written[:, 0].tolist() == values
    values = [0, 4, 2] * 40
    found = _label_of(analyze, "multiclass", values)
    assert found.values.numpy()[:, 0].tolist() == values
    assert found.values.dtype.as_numpy_dtype == np.int64
    assert found.classes.numpy() == 5


def test_a_binary_label_that_cannot_be_trained_on_is_refused(analyze: Any) -> None:
    for values, message in [
        ([0] * ROWS, r"label 'y' is constant \(value 0 in all 120 rows\)"),
        ([0, 1, 2] * 40, r"neither 0 nor 1 .* in 40 of 120 rows.* example 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            _label_of(analyze, "binary", values)


def test_a_label_that_cannot_be_trained_on_fails_the_analysis(run_transform: Any) -> None:
    spec = _spec(label={"column": "y", "kind": "multiclass"})
    with pytest.raises(Exception, match=r"constant \(one value in all 120 rows\)"):
        run_transform(spec, {"x": X, "y": ["cat"] * ROWS})


def test_messages_count_rows_over_all_batches() -> None:
    for accumulators, message in [
        ([[9, 4, 0, -np.inf, 0, 1]], "is missing in 4 of 9 rows; leave these rows out"),
        ([[9, 9, 0, -np.inf, np.inf, -np.inf]], "is missing in all 9 rows; use another column"),
        ([[9, 0, 1, 2.5, 0, 1], [9, 0, 1, 3, 0, 1]], "is odd in 2 of 18 rows, for example 3"),
        ([[9, 0, 0, -np.inf, 1.5, 1.5]] * 2, r"is constant \(value 1.5 in all 18 rows\)"),
    ]:
        from transform.encode.label import _TargetCombiner

        combiner = _TargetCombiner("label 'y'", "is odd")
        merged = combiner.create_accumulator()
        for accumulator in accumulators:
            merged = combiner.add_input(merged, [np.asarray(accumulator, np.float64)])
        with pytest.raises(ValueError, match=message):
            combiner.extract_output(merged)


@pytest.mark.slow
def test_only_the_analysis_data_must_vary(run_transform: Any) -> None:
    """Another split may have one class, rows without a label (NaN), and poisoned features."""
    spec = _spec(label={"column": "y", "kind": "binary", "positive": ">50K"})
    result = run_transform(
        spec,
        {"x": X, "y": [">50K", "<=50K"] * 60},
        evaluation={"x": [X[0], 1e6, None, NAN], "y": [">50K", None, "", ">50K"]},
    )
    np.testing.assert_array_equal(result.written["y"][:, 0], [1.0, NAN, NAN, 1.0])
    x = np.asarray(X)
    expected = [(X[0] - x.mean()) / x.std(), (1e6 - x.mean()) / x.std(), 0.0, 0.0]
    np.testing.assert_allclose(result.column("x"), expected, rtol=1e-6, atol=1e-6)
