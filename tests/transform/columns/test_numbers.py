"""Missing values of scaled columns, over one Beam run of many small batches.

The values of each scaler: scale/test_contract.py. Reference: NumPy in float64 on the float32 (or
int64) values that tf.Example holds.

Bounds and what a missing number becomes, against NumPy; exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.analyzers.moments import FittedStatistics  # noqa: E402
from transform.analyzers.quantiles import OrderStatistics  # noqa: E402
from transform.columns.numbers import _fill_values, _limit, clip  # noqa: E402
from transform.spec.group import Clip, Group  # noqa: E402

ROWS = 700
NAN, INF = float("nan"), float("inf")


def _holes(values: list[Any], seed: int) -> list[Any]:
    """A quarter of the values absent, NaN, +inf or -inf."""
    rng = np.random.default_rng(seed)
    holes = [None, NAN, INF, -INF]
    return [
        holes[rng.integers(4)] if hole else value
        for value, hole in zip(values, rng.random(len(values)) < 0.25, strict=True)
    ]


def _columns() -> dict[str, list[Any]]:
    rng = np.random.default_rng(1)
    floats = {
        "normal": rng.normal(3.0, 2.0, ROWS),
        "skewed": rng.exponential(1e3, ROWS),
        "tiny": rng.normal(0.0, 1e-30, ROWS),
        "huge": rng.normal(0.0, 1e30, ROWS),
        "cauchy": rng.standard_cauchy(ROWS),
    }
    columns: dict[str, list[Any]] = {}
    for seed, (name, values) in enumerate(floats.items()):
        columns[name] = _holes([float(v) for v in values.astype(np.float32)], seed)
    columns["offset"] = [int(v) for v in 10**9 + rng.integers(-1, 2, ROWS)]
    columns["offset_holes"] = [
        None if hole else int(v)
        for v, hole in zip(10**9 + rng.integers(-1, 2, ROWS), rng.random(ROWS) < 0.2, strict=True)
    ]
    columns["offset_float"] = [float(v) for v in (2**24 + rng.integers(-1, 1, ROWS))]
    columns["constant"] = _holes([0.1] * ROWS, 11)
    columns["constant_dense"] = [0.3] * ROWS
    columns["empty"] = [None] * ROWS
    columns["all_nan"] = [NAN] * ROWS
    columns["one_value"] = [None] * (ROWS - 1) + [5.0]
    columns["dense"] = [float(v) for v in rng.normal(0, 1, ROWS).astype(np.float32)]
    return columns


RAW = _columns()
DENSE = ("constant_dense", "dense", "offset")
COLUMNS = {**RAW, "m_normal": RAW["normal"], "none_constant": RAW["normal"]}
SPEC = {
    "groups": [
        {"name": "z", "columns": list(RAW), "scale": "z_score", "missing_indicator": True},
        {"name": "m", "columns": "m_normal", "scale": "min_max"},
        {
            "name": "nc",
            "columns": "none_constant",
            "impute": {"constant": -7.0},
            "scale": "none",
        },
    ]
}


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    return run_transform(SPEC, COLUMNS, dense=DENSE, batch_size=37)


def _reference(name: str) -> np.ndarray:
    """The raw column as float64, NaN where missing."""
    values = [NAN if v is None else v for v in COLUMNS[name]]
    is_float = any(isinstance(v, float) and np.isfinite(v) for v in values)
    x = (
        np.asarray(values, np.float32).astype(np.float64)
        if is_float
        else np.asarray(values, np.float64)
    )
    return np.where(np.isfinite(x), x, NAN)


def _min_max(x: np.ndarray) -> np.ndarray:
    present = x[~np.isnan(x)]
    if present.size == 0 or present.min() == present.max():
        return np.zeros_like(x)
    filled = np.where(np.isnan(x), present.mean(), x)
    return (filled - present.min()) / (present.max() - present.min())


def test_no_output_is_ever_missing(result: Any) -> None:
    assert np.isfinite(result.written["packed_float"]).all()


def test_indicators_and_mask_mark_what_was_missing(result: Any) -> None:
    words = result.written["packed_missing"]
    columns = result.layout.columns
    assert words.shape == (ROWS, -(-len(columns) // 32))
    for i, column in enumerate(columns):
        missing = np.isnan(_reference(column.source))
        np.testing.assert_array_equal((words[:, i // 32] >> (i % 32)) & 1, missing, column.name)
        if column.kind == "missing_indicator":
            np.testing.assert_array_equal(result.column(column.name), missing)


def test_an_empty_request_is_served_with_imputed_values(result: Any) -> None:
    """A batch without any value of any sparse column, as one poor request makes it."""
    import tensorflow as tf

    spec = result.feature_spec
    defaults = {k: v for k, v in spec.items() if isinstance(v, tf.io.FixedLenFeature)}
    rows = {name: tf.zeros([1, 1], feature.dtype) for name, feature in defaults.items()}
    for name in set(spec) - set(defaults):
        none = tf.zeros([0, 2], tf.int64), tf.zeros([0], spec[name].dtype)
        rows[name] = tf.SparseTensor(*none, [1, 0])
    served = result.output.transform_raw_features(rows)
    names = result.layout.names()
    packed = dict(zip(names, served["packed_float"].numpy()[0], strict=True))
    assert packed["normal"] == 0.0
    assert packed["normal_missing"] == 1.0
    assert packed["none_constant"] == -7.0
    x = _reference("normal")
    assert packed["m_normal"] == pytest.approx(np.nanmean(_min_max(x)), abs=1e-6)


def test_a_request_without_a_promised_column_is_refused_by_name(result: Any) -> None:
    import tensorflow as tf

    lacking = tf.train.Example.FromString(result.records[0])
    del lacking.features.feature["constant_dense"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Feature: constant_dense .*required"):
        result.raw([lacking.SerializeToString()])


def test_the_naive_way_differs(tmp_path: Any) -> None:
    """One NaN, and tft's own min-max scaling of [1, 2, 5] is no longer [0, 0.25, 1]."""
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    rows = [{"x": v} for v in (1.0, 2.0, 5.0, NAN)]
    metadata = tft.DatasetMetadata.from_feature_spec({"x": tf.io.FixedLenFeature([], tf.float32)})
    with (
        beam.Pipeline(runner="FnApiRunner") as pipeline,
        tft_beam.Context(temp_dir=str(tmp_path / "temp")),
    ):
        data = pipeline | beam.Create(rows)
        (scaled, _), _ = (data, metadata) | tft_beam.AnalyzeAndTransformDataset(
            lambda inputs: {"x": inputs["x"], "y": tft.scale_to_0_1(inputs["x"])}
        )
        _ = (
            scaled
            | beam.Filter(lambda row: row["x"] == 5.0)
            | beam.Map(lambda row: repr(float(row["y"])))
            | beam.io.WriteToText(str(tmp_path / "y"), shard_name_template="")
        )
    naive = float((tmp_path / "y").read_text())
    assert not abs(naive - 1.0) < 1e-3  # the maximum of a min-max scaled column is 1


NAN_of_impute = float("nan")


def test_each_column_has_its_own_bounds() -> None:
    x = np.asarray([[-5.0, -5.0, -5.0, NAN_of_impute], [5.0, 5.0, 5.0, 5.0]])
    bounds = [None, Clip(min=0.0), Clip(max=1.0), Clip(min=-1.0, max=1.0)]
    found = clip(tf.constant(x), bounds).numpy()
    np.testing.assert_array_equal(found, [[-5.0, 0.0, -5.0, NAN_of_impute], [5.0, 5.0, 1.0, 1.0]])


def test_learned_bounds_wait_and_nothing_to_clip_is_nothing() -> None:
    x = tf.constant([[5.0, 6.0]], tf.float64)
    assert clip(x, [None, Clip(quantiles=(0.1, 0.9))]) is x
    np.testing.assert_array_equal(_limit(x, [0.0, 0.0], [1.0, 7.0]), [[1.0, 6.0]])


def _group(**options: Any) -> Group:
    return Group.model_validate({"name": "g", "columns": "x", **options})


def test_every_column_is_filled_by_its_group(analyze: Any) -> None:
    groups = [
        _group(scale="z_score"),
        _group(scale="robust"),
        _group(scale="none", impute={"constant": 9.0}),
        _group(scale="none", impute="most_frequent"),
    ]
    x = np.tile(np.asarray([1.0, 1.0, 4.0, NAN_of_impute])[:, np.newaxis], 4)
    four = {
        name: tf.fill([4], tf.constant(value, tf.float64))
        for name, value in {
            "low": -np.inf,
            "high": np.inf,
            "mean": 2.0,
            "median": 1.5,
            "any": 0.0,
        }.items()
    }
    statistics = FittedStatistics(*(four[n] for n in ("any", "mean", "any", "any", "any")))
    order = OrderStatistics(*(four[n] for n in ("low", "high", "any", "median", "any")))

    def fill(rows: np.ndarray) -> Any:
        return _fill_values(tf.constant(rows), groups, statistics, order)

    found = analyze(fill, [x[:2], x[2:]], x).numpy()
    assert found.tolist() == [2.0, 1.5, 9.0, 1.0]
