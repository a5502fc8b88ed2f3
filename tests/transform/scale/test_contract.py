"""What holds for every scaler of the table, over one Beam run and in this process.

Reference: NumPy in float64 on the float32 values that tf.Example holds. Tolerance: 1e-6 of an
output of size 1, which is float32; of ranks, 0.1 % of the rows (the sketch) and a row either side.
A new scaler needs its formula in `REFERENCES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import yeojohnson
from sklearn.preprocessing import MaxAbsScaler, PowerTransformer

tf = pytest.importorskip("tensorflow")

from components.normalization_validator import check, columns, limits, statistics  # noqa: E402
from pipeline.features.features_explain import step_text  # noqa: E402
from transform import column_chains  # noqa: E402
from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.numbers import scaled  # noqa: E402
from transform.scale.table import SCALERS  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402

ROWS, MORE = 400, 40
NAN = float("nan")
RNG = np.random.default_rng(3)
FUNCTIONS = {"log1p": lambda x: np.sign(x) * np.log1p(np.abs(x)), "asinh": np.arcsinh}
Numbers = dict[str, Any]


class Reference(NamedTuple):
    """A scaler's formula: of filled values, the present values and what `explain` says."""

    formula: Callable[[np.ndarray, np.ndarray, Numbers], np.ndarray]
    explains: Callable[[np.ndarray], Numbers] = lambda present: {}
    is_by_rank: bool = False


def _robust(y: np.ndarray, x: np.ndarray, numbers: Numbers) -> np.ndarray:
    quartiles = [numbers[n] for n in ("lower_quartile", "median", "upper_quartile")]
    rounding = 4 * np.spacing(np.abs(x).max())  # TensorFlow's functions against NumPy's
    for found, level in zip(quartiles, (0.25, 0.5, 0.75), strict=True):
        assert np.mean(x < found - rounding) - 0.001 <= level + 1 / x.size
        assert np.mean(x <= found + rounding) + 0.001 >= level - 1 / x.size
    low, median, high = quartiles
    return (y - median) / (high - low if high > low else np.ptp(x))


def _power(y: np.ndarray, x: np.ndarray, numbers: Numbers) -> np.ndarray:
    if x.std() > 1e-3 * np.abs(x).max():  # else every power is as likely
        fitted = PowerTransformer().fit(x[:, np.newaxis]).lambdas_[0]
        fitted = np.clip(fitted, -2.0, 4.0)  # the ends of the grid, whose step is 0.04
        assert numbers["power"] == pytest.approx(fitted, abs=0.021)
    of_present = yeojohnson(x, numbers["power"])
    return (yeojohnson(y, numbers["power"]) - of_present.mean()) / of_present.std()


def _gaussian(y: np.ndarray, x: np.ndarray, numbers: Numbers) -> np.ndarray:
    ordered = np.sort(x)
    below, up_to = (np.searchsorted(ordered, y, side=side) for side in ("left", "right"))
    return ndtri(np.clip((below + up_to) / 2 / x.size, 0.0005, 0.9995))


REFERENCES = {
    "z_score": Reference(
        lambda y, x, _: (y - x.mean()) / x.std(),
        lambda x: {"mean": x.mean(), "standard_deviation": x.std()},
    ),
    "min_max": Reference(
        lambda y, x, _: (y - x.min()) / np.ptp(x), lambda x: {"min": x.min(), "max": x.max()}
    ),
    "max_abs": Reference(
        lambda y, x, _: MaxAbsScaler().fit(x[:, np.newaxis]).transform(y[:, np.newaxis])[:, 0],
        lambda x: {"max_abs": np.abs(x).max()},
    ),
    "robust": Reference(_robust),
    "gaussian": Reference(_gaussian, is_by_rank=True),
    "power": Reference(_power),
    "log1p": Reference(lambda y, x, _: FUNCTIONS["log1p"](y)),
    "asinh": Reference(lambda y, x, _: FUNCTIONS["asinh"](y)),
    "none": Reference(lambda y, x, _: y),
}


def _scale_of(kind: str) -> Any:
    return kind.split("+") if "+" in kind else kind


def _holes(values: np.ndarray, rng: Any = RNG) -> list[float | None]:
    holes = (None, NAN, float("inf"), float("-inf"))
    return [
        holes[rng.integers(4)] if rng.random() < 0.2 else float(v)
        for v in values.astype(np.float32)
    ]


def _rows(rows: int, unit: float) -> dict[str, list[Any]]:
    """Rows of each kind of column; a large `unit` makes values that train does not have."""
    return {
        "varies": _holes(unit * RNG.gamma(2.0, 3.0, rows) - 2.0),
        "offset": [10**9 + int(v) for v in unit * RNG.integers(-3, 4, rows)],
        "mostly": [7.0 if v < 0.9 else float(np.float32(unit * v)) for v in RNG.random(rows)],
        "constant": _holes(np.full(rows, 2.5 * unit)),
        "zero": [0.0 * unit] * rows,
        "empty": [None] * rows if unit == 1.0 else [3.0] * rows,
    }


TRAIN, UNSEEN = _rows(ROWS, 1.0), _rows(MORE, 1000.0)


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    """Every scaler on every column, side by side, in turns."""
    groups = [
        {"name": f"{kind} {name}", "columns": f"{kind} {name}", "scale": _scale_of(kind)}
        for name in TRAIN
        for kind in SCALERS
    ]
    groups = [{**group, "impute": "mean", "missing_indicator": True} for group in groups]

    def raw(*rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {f"{k} {n}": [v for r in rows for v in r[n]] for n in TRAIN for k in SCALERS}

    both = raw(TRAIN, UNSEEN)
    return run_transform({"groups": groups}, raw(TRAIN), evaluation=both, batch_size=50)


@pytest.fixture(scope="module")
def explained(result: Any) -> dict[str, Any]:
    return {chain.column: chain for chain in column_chains(result.uri)}


def _numbers(values: list[Any]) -> np.ndarray:
    x = np.asarray([NAN if v is None else v for v in values])
    x = x.astype(np.float32).astype(np.float64) if x.dtype.kind == "f" else x.astype(np.float64)
    return np.where(np.isfinite(x), x, NAN)


def _expected(kind: str, name: str, numbers: Numbers) -> np.ndarray:
    first, _, last = kind.rpartition("+")
    function = FUNCTIONS.get(first, lambda x: x)
    x, train = (function(_numbers(v)) for v in (TRAIN[name] + UNSEEN[name], TRAIN[name]))
    present = train[~np.isnan(train)]
    if SCALERS[kind].requires and (present.size == 0 or np.ptp(present) == 0):
        return np.zeros_like(x)
    mean = present.mean() if present.size else 0.0
    return REFERENCES[last].formula(np.where(np.isnan(x), mean, x), present, numbers)


def check_scaler_contract(kind: str, result: Any, explained: dict[str, Any]) -> None:
    """Check a scaler's values, explanation and validation rule on what one Transform wrote."""
    scaler = SCALERS[kind]
    kinds = {column.name: column.kind for column in result.layout.columns}
    for name in TRAIN:
        assert kinds[f"{kind} {name}"] == kind
        column, numbers = f"{kind} {name}", dict(explained[f"{kind} {name}"].steps[-1].numbers)
        found = result.column(column).astype(np.float64)
        expected = _expected(kind, name, numbers)
        if kind in REFERENCES and REFERENCES[kind].is_by_rank:
            rank = 2 / 1000 + 2 / ROWS
            np.testing.assert_allclose(ndtr(found), ndtr(expected), atol=rank, err_msg=column)
        else:
            unit = 1e-6 + _rounding(kind, name)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=unit, err_msg=column)
        missing = np.isnan(_numbers(TRAIN[name] + UNSEEN[name]))
        np.testing.assert_array_equal(result.column(f"{column}_missing"), missing, column)
        if scaler.requires and name in ("constant", "zero", "empty"):
            assert not found.any(), f"{column}: unseen values of a constant column are 0"
    _check_explanation(kind, explained)
    _check_rule(kind, result)


def _rounding(kind: str, name: str) -> float:
    """Return what the last digit of a chain's function is in the unit of its scaler."""
    x = _numbers(TRAIN[name])
    if "+" not in kind or np.isnan(x).all() or np.nanmin(x) == np.nanmax(x):
        return 0.0
    y = FUNCTIONS[kind.partition("+")[0]](x[~np.isnan(x)])
    return float(4 * np.spacing(np.abs(y).max()) / y.std())


def _check_explanation(kind: str, explained: dict[str, Any]) -> None:
    scale = explained[f"{kind} varies"].steps[-1]
    assert step_text(scale).startswith(f"scale {scale.kind}")
    first, _, last = kind.rpartition("+")
    if first:
        assert scale.numbers["of"] == first
    assert scale.kind == kind
    train = FUNCTIONS.get(first, lambda x: x)(_numbers(TRAIN["varies"]))
    for name, value in REFERENCES[last].explains(train[~np.isnan(train)]).items():
        assert scale.numbers[name] == pytest.approx(value, rel=1e-12), name
    notes = {n: explained[f"{kind} {n}"].steps[-1].numbers.get("note", "") for n in TRAIN}
    if SCALERS[kind].requires:
        assert "constant" in notes["constant"]
        assert "no value" in notes["empty"]
    else:
        assert not any(notes.values())


def _violations(result: Any, column: str, factor: float) -> list[str]:
    """Fields of the limits that the train rows violate, all values times `factor`."""
    features = columns.read_feature_set(result.uri)
    (feature,) = features.features
    words = result.written["packed_missing"][:ROWS]
    values = columns.Values(
        result.written[feature.name][:ROWS].astype(np.float64) * factor,
        columns._unpack(words, feature.columns),
        0,
    )
    compute = statistics.ComputeStatistics(features, "train")
    state = compute.add_input(compute.create_accumulator(), columns.Batch(ROWS, (values,)))
    measured = compute.extract_output(state).columns
    (one,) = (each for each in measured if each.name == column)
    found = check.find_violations({"train": [one]}, limits.NormalizationLimits())
    return [each.limit for each in found]


def _check_rule(kind: str, result: Any) -> None:
    rule = SCALERS[kind].validation_rule
    assert _violations(result, f"{kind} varies", 1.0) == []
    corrupted = _violations(result, f"{kind} varies", 1000.0)
    limit = "z_score." if rule and rule.name == "z_score" else "ignore"
    assert all(each.startswith(f"normalization.{limit}") for each in corrupted)
    assert bool(corrupted) == (rule is not None)


def test_scaler_contract(result: Any, explained: dict[str, Any]) -> None:
    for kind in SCALERS:
        check_scaler_contract(kind, result, explained)


def test_serving_computes_what_was_written_bit_for_bit(result: Any) -> None:
    result.check_serving(alone=(0, 7, ROWS + 1))


@pytest.mark.parametrize("kind", ["z_score", "gaussian", "power", "none", "log1p+robust"])
def test_shards_merge_in_any_order(analyze: Any, kind: str) -> None:
    """Also one row alone, and shards without a value."""
    group = Group.model_validate({"name": "g", "columns": "x", "scale": _scale_of(kind)})
    x = RNG.gamma(2.0, 3.0, 60)
    x[:5] = NAN

    def function(rows: np.ndarray) -> Any:
        dense = DenseColumns({"x": tf.constant(x[rows])}, numbers=["x"], texts=[])
        return scaled([ResolvedGroup(group, ("x",))], dense)[0].values

    every = np.arange(x.size)
    one_pass = analyze(function, [every], every).numpy()
    for shards in ([every[:5], every[5:30], every[30:]], [every[30:], every[:5], every[5:30]]):
        merged = analyze(function, shards, every).numpy()
        np.testing.assert_allclose(merged, one_pass, rtol=1e-6, atol=1e-6)
    alone = analyze(function, [every[9:10]], every).numpy()
    assert np.isfinite(alone).all()
    assert alone.any() == (not SCALERS[kind].requires)
    assert np.isfinite(analyze(function, [every[:5]], every[:5]).numpy()).all()
