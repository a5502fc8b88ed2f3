"""What `column_chains` and `column_cautions` read from a transform graph.

Reference: NumPy and counts on the rows below. Tolerance: 1e-6 relative; quantiles are values of the
column, of a rank that is off by at most 0.1 % of the rows plus one row. The numbers of every scaler
and encoder: `scale/test_contract.py` and `encode/test_contract.py`.
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
    "age": _holes(RNG.normal(30.0, 5.0, ROWS), 8),
    "level": [None if i % 5 == 0 else int(i * i % 7) for i in range(ROWS)],
    "company": ["red" if i % 3 else "grün" if i % 2 else None for i in range(ROWS)],
    "payment": [None if i % 4 == 0 else ("Cash", "Card")[i % 3 == 0] for i in range(ROWS)],
    "tags": [["a", "b"] if i % 2 else ["b"] for i in range(ROWS)],
}
COLUMNS["age"][2] = float("inf")
AROUND, COARSE = 10**9 + RNG.integers(-1, 2, ROWS), 10**9 + RNG.integers(-500, 500, ROWS)
CAUTIONED: dict[str, list[Any]] = {
    "when": ["13/05/2020" if i % 4 else "2020-05-13" for i in range(ROWS - 1)] + [""],
    "epoch": [1_700_000_000_000 + i for i in range(ROWS)],  # milliseconds, read as seconds
    "read": ["2020-05-13"] * ROWS,
    "int_around": [int(v) for v in AROUND],
    "float_around": [float(v) for v in AROUND],
    "float_coarse": [float(v) for v in COARSE],
    "int_sum": [int(v) for v in COARSE],
    "float_label": [float(v) for v in 10**9 + RNG.integers(-5000, 5000, ROWS)],
    "zeros": [0.0 if i % 10 else float(i) for i in range(ROWS)],
    "even": [float(i) for i in range(ROWS)],
}
SPEC: dict[str, Any] = yaml.safe_load("""
groups:
  - {name: money, columns: fare, clip: {max: 20.0}, scale: z_score}
  - {name: tips, columns: tip, clip: {quantiles: [0.05, 0.95]}, scale: robust}
  - {name: way, columns: [miles, flat], scale: min_max, missing_indicator: 1}
  - {name: rank, columns: wait, scale: gaussian, impute: {constant: 1.0}}
  - {name: age, columns: age, encode: {bucketize: {buckets: 4}}}
  - {name: level, columns: level, impute: most_frequent, encode: {integer: {size: 7}}}
  - {name: names, columns: company, encode: vocabulary}
  - {name: pay, columns: payment, impute: most_frequent, encode: {one_hot: {values: [Cash, Card]}}}
  - {name: tags, columns: tags, encode: {multi_hot: {top_k: 3}}}
  - {name: dates, columns: [when, epoch, read], encode: {date: {parts: month}}}
  - {name: around, columns: [int_around, float_around, float_coarse], scale: z_score}
  - {name: buckets, columns: [zeros, even], encode: {bucketize: {buckets: 5}}}
  - {name: sum, columns: int_sum, scale: none}
crosses:
  - {name: both, columns: [company, level], encode: vocabulary}
label: {column: float_label, kind: regression}
""")


def _present(name: str) -> np.ndarray:
    values = np.asarray([v for v in COLUMNS[name] if v is not None], np.float64)
    return values[np.isfinite(values)]


@pytest.fixture(scope="module")
def run(run_transform: Any) -> Any:
    return run_transform(SPEC, COLUMNS | CAUTIONED)


@pytest.fixture(scope="module")
def chains(run: Any) -> dict[str, Any]:
    from transform import column_chains

    found = {chain.column: chain for chain in column_chains(run.uri)}
    return {name: found[name] for name in [*COLUMNS, "both"]}


def _assert_rank(found: float, present: np.ndarray, level: float) -> None:
    tolerance = 1e-3 + 1.0 / present.size
    assert found in present
    assert np.mean(present < found) - tolerance <= level <= np.mean(present <= found) + tolerance


def test_the_chains_are_those_of_the_spec(chains: dict[str, Any]) -> None:
    steps = {name: " ".join(f"{s.name}:{s.kind}" for s in c.steps) for name, c in chains.items()}
    assert steps == {
        "fare": "clip:absolute impute:mean scale:z_score",
        "tip": "clip:quantiles impute:median scale:robust",
        "miles": "impute:mean scale:min_max",
        "flat": "impute:mean scale:min_max",
        "wait": "impute:constant scale:gaussian",
        "age": "encode:bucketize",
        "level": "impute:most_frequent encode:integer",
        "company": "encode:vocabulary",
        "payment": "impute:most_frequent encode:one_hot",
        "tags": "encode:multi_hot",
        "both": "cross:of encode:vocabulary",
    }
    assert chains["miles"].outputs == ("miles", "miles_missing")
    endings = ("=Cash", "=Card", "_other", "_missing")
    assert chains["payment"].outputs == tuple(f"payment{ending}" for ending in endings)
    json.dumps([asdict(chain) for chain in chains.values()], allow_nan=False)


def test_rows_with_a_value_are_counted(chains: dict[str, Any]) -> None:
    """Encoded columns and the cross as well as scaled ones."""
    expected = {name: sum(v is not None for v in values) for name, values in COLUMNS.items()}
    expected["age"] -= 1  # the infinite one
    pairs = zip(COLUMNS["company"], COLUMNS["level"], strict=True)
    expected["both"] = sum(None not in pair for pair in pairs)
    assert {name: chain.count for name, chain in chains.items()} == expected


def test_what_is_filled_in_and_clipped(chains: dict[str, Any]) -> None:
    clip, impute, scale = chains["fare"].steps
    clipped = np.minimum(_present("fare"), 20.0)
    assert clip.numbers == {"max": 20.0}
    assert impute.numbers["value"] == pytest.approx(clipped.mean(), rel=1e-6)
    assert scale.numbers["standard_deviation"] == pytest.approx(clipped.std(), rel=1e-6)
    assert "constant (2.5)" in chains["flat"].steps[1].numbers["note"]
    clip, impute, scale = chains["tip"].steps
    tip = _present("tip")
    _assert_rank(clip.numbers["min"], tip, 0.05)
    _assert_rank(clip.numbers["max"], tip, 0.95)
    clipped = np.clip(tip, clip.numbers["min"], clip.numbers["max"])
    _assert_rank(impute.numbers["value"], clipped, 0.5)
    _assert_rank(scale.numbers["upper_quartile"], clipped, 0.75)
    impute, scale = chains["wait"].steps
    assert impute.numbers == {"value": 1.0}
    assert next(iter(scale.numbers)) == "quantile_0"
    for name, value in scale.numbers.items():
        _assert_rank(value, _present("wait"), float(name.removeprefix("quantile_")))
    level = Counter(v for v in COLUMNS["level"] if v is not None)
    most = float(min(level, key=lambda value: (-level[value], value)))
    assert chains["level"].steps[0].numbers == {"value": most}
    assert chains["payment"].steps[0].numbers == {"value": "Cash"}


def test_encoders_show_what_they_learned(chains: dict[str, Any]) -> None:
    (encode,) = chains["age"].steps
    assert encode.numbers["ids"] == 5
    for level, boundary in zip([0.25, 0.5, 0.75], encode.numbers["boundaries"], strict=True):
        assert np.mean(_present("age") <= boundary) == pytest.approx(level, abs=0.015)
    last = {name: chain.steps[-1].numbers for name, chain in chains.items()}
    assert last["payment"] == {"values": ["Cash", "Card"]}
    assert last["company"] == {"oov_buckets": 1, "values": 2, "ids": 4}
    assert last["level"] == {"size": 7, "ids": 9}
    assert last["tags"] == {"top_k": 3, "values": ["b", "a", "tags#2"]}
    pairs = set(zip(COLUMNS["company"], COLUMNS["level"], strict=True))
    assert last["both"]["values"] == sum(None not in pair for pair in pairs)


def test_a_graph_of_another_preprocessing_fn_is_refused(tmp_path: Any) -> None:
    from transform import column_chains

    with pytest.raises(ValueError, match="has no feature layout with its specification"):
        column_chains(str(tmp_path))


def test_columns_that_lost_something_are_reported_and_no_others(run: Any) -> None:
    from transform import column_cautions

    warnings = column_cautions(run.uri)
    assert all(repr(each.column) in each.what and each.fix for each in warnings)
    cautions = [str(each) for each in warnings]
    step, unread = np.spacing(np.float32(1e9)), CAUTIONED["when"].count("13/05/2020")
    coarse = f"float32, which is {step:g} coarse"
    parts = {
        "when": [
            f"cannot read {unread / (ROWS - 1):.1%} of the values ({unread} of {ROWS - 1})",
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
    assert np.ptp(run.column("int_around")) > 1.0  # int64 keeps what float32 loses
    assert not run.column("float_around").any()
    served = run.output.transform_raw_features(run.raw(without=("float_label",)))
    assert set(run.written) - set(served) == {"float_label"}  # needed by no feature
