"""What `column_chains` reads from a transform graph, against NumPy on its own rows.

Tolerance: 1e-6 relative; quantiles are values of the column, of a rank that is off by at most
0.1 % of the rows plus one row.

What Transform says of columns that lost what their data held.

Reference: the counts of the data below; the steps of float32 from NumPy.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import yaml

pytestmark = pytest.mark.slow
ROWS = 400
RNG = np.random.default_rng(3)


def _holes(values: Any, every: int) -> list[Any]:
    return [None if i % every == 1 else float(np.float32(v)) for i, v in enumerate(values)]


COLUMNS: dict[str, list[Any]] = {
    "fare": _holes(RNG.lognormal(2.0, 1.0, ROWS), 5),
    "tip": _holes(RNG.lognormal(0.0, 1.0, ROWS), 7),
    "miles": _holes(RNG.normal(5.0, 2.0, ROWS), 4),
    "wait": _holes(RNG.lognormal(1.0, 2.0, ROWS), 6),
    "flat": _holes(np.full(ROWS, 2.5), 9),
    "speed": _holes(RNG.normal(30.0, 5.0, ROWS), 8),
    "age": _holes(RNG.normal(30.0, 5.0, ROWS), 8),
    "level": [None if i % 5 == 0 else int(i * i % 7) for i in range(ROWS)],
    "company": ["red" if i % 3 else "grün" if i % 2 else None for i in range(ROWS)],
    "payment": [None if i % 4 == 0 else ("Cash", "Card")[i % 3 == 0] for i in range(ROWS)],
    "tags": [["a", "b"] if i % 2 else ["b"] for i in range(ROWS)],
}
COLUMNS["age"][2] = float("inf")
SPEC: dict[str, Any] = yaml.safe_load("""
groups:
  - {name: money, columns: fare, clip: {max: 20.0}, scale: z_score}
  - {name: tips, columns: tip, clip: {quantiles: [0.05, 0.95]}, scale: robust}
  - {name: way, columns: [miles, flat], scale: min_max, missing_indicator: 1}
  - {name: rank, columns: wait, scale: gaussian, impute: {constant: 1.0}}
  - {name: speed, columns: speed, scale: log1p, impute: most_frequent}
  - {name: age, columns: age, encode: {bucketize: {buckets: 4}}}
  - {name: level, columns: level, impute: most_frequent, encode: {integer: {size: 7}}}
  - {name: names, columns: company, encode: vocabulary}
  - {name: pay, columns: payment, impute: most_frequent, encode: {one_hot: {values: [Cash, Card]}}}
  - {name: tags, columns: tags, encode: {multi_hot: {top_k: 3}}}
crosses:
  - {name: both, columns: [company, level], encode: vocabulary}
""")


def _present(name: str) -> np.ndarray:
    values = np.asarray([v for v in COLUMNS[name] if v is not None], np.float64)
    return values[np.isfinite(values)]


@pytest.fixture(scope="module")
def chains(run_transform: Any) -> dict[str, Any]:
    from transform import column_chains

    return {chain.column: chain for chain in column_chains(run_transform(SPEC, COLUMNS).uri)}


def _steps(chain: Any) -> list[tuple[str, str]]:
    return [(step.name, step.kind) for step in chain.steps]


def _assert_rank(found: float, present: np.ndarray, level: float) -> None:
    tolerance = 1e-3 + 1.0 / present.size
    assert found in present
    assert np.mean(present < found) - tolerance <= level <= np.mean(present <= found) + tolerance


def test_the_chains_are_those_of_the_spec(chains: dict[str, Any]) -> None:
    assert {name: _steps(chain) for name, chain in chains.items()} == {
        "fare": [("clip", "absolute"), ("impute", "mean"), ("scale", "z_score")],
        "tip": [("clip", "quantiles"), ("impute", "median"), ("scale", "robust")],
        "miles": [("impute", "mean"), ("scale", "min_max")],
        "flat": [("impute", "mean"), ("scale", "min_max")],
        "wait": [("impute", "constant"), ("scale", "gaussian")],
        "speed": [("impute", "most_frequent"), ("scale", "log1p")],
        "age": [("encode", "bucketize")],
        "level": [("impute", "most_frequent"), ("encode", "integer")],
        "company": [("encode", "vocabulary")],
        "payment": [("impute", "most_frequent"), ("encode", "one_hot")],
        "tags": [("encode", "multi_hot")],
        "both": [("cross", "of"), ("encode", "vocabulary")],
    }
    assert chains["miles"].outputs == ("miles", "miles_missing")
    assert chains["payment"].outputs == (
        "payment=Cash", "payment=Card", "payment_other", "payment_missing"
    )  # fmt: skip
    json.dumps([asdict(chain) for chain in chains.values()], allow_nan=False)


def test_rows_with_a_value_are_counted(chains: dict[str, Any]) -> None:
    """Encoded columns and the cross as well as scaled ones."""
    expected = {name: sum(v is not None for v in values) for name, values in COLUMNS.items()}
    expected["age"] -= 1  # the infinite one
    pairs = zip(COLUMNS["company"], COLUMNS["level"], strict=True)
    expected["both"] = sum(None not in pair for pair in pairs)
    assert {name: chain.count for name, chain in chains.items()} == expected


def test_means_and_bounds_equal_numpy(chains: dict[str, Any]) -> None:
    clip, impute, scale = chains["fare"].steps
    clipped = np.minimum(_present("fare"), 20.0)
    assert clip.numbers == {"max": 20.0}
    assert impute.numbers["value"] == pytest.approx(clipped.mean(), rel=1e-6)
    assert scale.numbers["mean"] == pytest.approx(clipped.mean(), rel=1e-6)
    assert scale.numbers["standard_deviation"] == pytest.approx(clipped.std(), rel=1e-6)
    impute, scale = chains["miles"].steps
    miles = _present("miles")
    assert impute.numbers["value"] == pytest.approx(miles.mean(), rel=1e-6)
    assert scale.numbers == {"min": miles.min(), "max": miles.max()}
    assert "constant (2.5)" in chains["flat"].steps[1].numbers["note"]


def test_ranks_are_within_the_sketch_error(chains: dict[str, Any]) -> None:
    clip, impute, scale = chains["tip"].steps
    tip = _present("tip")
    _assert_rank(clip.numbers["min"], tip, 0.05)
    _assert_rank(clip.numbers["max"], tip, 0.95)
    clipped = np.clip(tip, clip.numbers["min"], clip.numbers["max"])
    _assert_rank(impute.numbers["value"], clipped, 0.5)
    _assert_rank(scale.numbers["median"], clipped, 0.5)
    _assert_rank(scale.numbers["lower_quartile"], clipped, 0.25)
    _assert_rank(scale.numbers["upper_quartile"], clipped, 0.75)
    impute, scale = chains["wait"].steps
    assert impute.numbers == {"value": 1.0}
    assert next(iter(scale.numbers)) == "quantile_0"
    for name, value in scale.numbers.items():
        _assert_rank(value, _present("wait"), float(name.removeprefix("quantile_")))
    (encode,) = chains["age"].steps
    assert encode.numbers["ids"] == 5
    for level, boundary in zip([0.25, 0.5, 0.75], encode.numbers["boundaries"], strict=True):
        assert np.mean(_present("age") <= boundary) == pytest.approx(level, abs=0.015)


def test_learned_values_equal_a_count(chains: dict[str, Any]) -> None:
    speed = Counter(v for v in COLUMNS["speed"] if v is not None)
    expected = min(speed, key=lambda value: (-speed[value], value))
    assert chains["speed"].steps[0].numbers == {"value": expected}
    level = Counter(v for v in COLUMNS["level"] if v is not None)
    assert chains["level"].steps[0].numbers == {
        "value": float(min(level, key=lambda value: (-level[value], value)))
    }
    assert chains["payment"].steps[0].numbers == {"value": "Cash"}
    assert chains["payment"].steps[1].numbers == {"values": ["Cash", "Card"]}
    assert chains["company"].steps[0].numbers == {"oov_buckets": 1, "values": 2, "ids": 4}
    assert chains["level"].steps[1].numbers == {"size": 7, "ids": 9}
    assert chains["tags"].steps[0].numbers == {"top_k": 3, "values": ["b", "a", "tags#2"]}
    pairs = set(zip(COLUMNS["company"], COLUMNS["level"], strict=True))
    known = [pair for pair in pairs if None not in pair]
    assert chains["both"].steps[1].numbers["values"] == len(known)


def test_a_graph_of_another_preprocessing_fn_is_refused(tmp_path: Any) -> None:
    from transform import column_chains

    with pytest.raises(ValueError, match="has no feature layout with its specification"):
        column_chains(str(tmp_path))


MANY = 200
RANDOM = np.random.default_rng(1)
AROUND = 10**9 + RANDOM.integers(-1, 2, MANY)
CAUTIONED: dict[str, list[Any]] = {
    "when": ["13/05/2020" if i % 4 else "2020-05-13" for i in range(MANY - 1)] + [""],
    "epoch": [1_700_000_000_000 + i for i in range(MANY)],  # milliseconds, read as seconds
    "read": ["2020-05-13"] * MANY,
    "int_around": [int(v) for v in AROUND],
    "float_around": [float(v) for v in AROUND],
    "float_coarse": [float(v) for v in 10**9 + RANDOM.integers(-500, 500, MANY)],
    "constant": [5.0] * MANY,
    "int_sum": [int(v) for v in 10**9 + RANDOM.integers(-500, 500, MANY)],
    "float_label": [float(v) for v in 10**9 + RANDOM.integers(-5000, 5000, MANY)],
    "zeros": [0.0 if i % 10 else float(i) for i in range(MANY)],
    "even": [float(i) for i in range(MANY)],
}
NUMBERS = ["int_around", "float_around", "float_coarse", "constant"]


@pytest.fixture(scope="module")
def cautions(run_transform: Any) -> list[str]:
    from transform import column_cautions

    groups = [
        {"name": "d", "columns": ["when", "epoch", "read"], "encode": {"date": {"parts": "month"}}},
        {"name": "n", "columns": NUMBERS, "scale": "z_score"},
        {"name": "b", "columns": ["zeros", "even"], "encode": {"bucketize": {"buckets": 5}}},
    ]
    groups.append({"name": "m", "columns": ["int_sum"], "scale": "none"})
    label = {"column": "float_label", "kind": "regression"}
    result = run_transform({"groups": groups, "label": label}, CAUTIONED)
    assert np.ptp(result.column("int_around")) > 1.0  # int64 keeps what float32 loses
    assert not result.column("float_around").any()
    served = result.output.transform_raw_features(result.raw(without=("float_label",)))
    assert set(result.written) - set(served) == {"float_label"}  # needed by no feature
    warnings = column_cautions(result.uri)
    assert all(repr(each.column) in each.what and each.fix for each in warnings)
    return [str(each) for each in warnings]


def test_columns_that_lost_something_are_reported_and_no_others(cautions: list[str]) -> None:
    step = np.spacing(np.float32(1e9))
    unread = CAUTIONED["when"].count("13/05/2020")
    coarse = f"float32, which is {step:g} coarse"
    parts = {
        "when": [
            f"cannot read {unread / (MANY - 1):.1%} of the values ({unread} of {MANY - 1})",
            "for example '13/05/2020'",
        ],
        "epoch": ["100.0%", "for example '1700000000000'"],
        "float_around": [
            f"one value (1e+09): 0 everywhere. tf.Example keeps float32, which is {step:g}"
        ],
        "float_coarse": [coarse],
        "float_label": [f"tf.Example keeps {coarse}"],  # a label's metrics are below its range
        "int_sum": [f"scale: none keeps {coarse}", "Use scale: z_score"],
        "zeros": [
            "4 of the 4 boundaries of encode: bucketize are 0",
            "of 5 buckets, at most 2 are used",
        ],
    }
    assert len(cautions) == len(parts), cautions
    for column, words in parts.items():
        (sentence,) = (said for said in cautions if said.startswith(f"column {column!r}"))
        assert all(word in sentence for word in words), sentence
