"""Most frequent, date, set and cross in one Beam run, on an eval split that is poisoned.

Reference: NumPy, Counter and datetime on the train rows; eval rows are transformed with train's
statistics, though they hold values and keys that train does not. Tolerance 1e-6, ids exactly.
"""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import numpy as np
import pytest
import yaml

pytestmark = pytest.mark.slow
ROWS, MORE = 600, 60
NAN = float("nan")
RNG = np.random.default_rng(11)
COMPANIES = ["red", "blue", "grün", None, ""]
TAGS = ["a", "b", "c", "d", "e"]


def _floats(values: Any, share: float) -> list[Any]:
    holes = [None, NAN, float("inf")]
    return [
        holes[RNG.integers(3)] if hole else float(np.float32(v))
        for v, hole in zip(values, RNG.random(len(values)) < share, strict=True)
    ]


def _columns(rows: int, *, poisoned: bool) -> dict[str, list[Any]]:
    scale = 1e6 if poisoned else 1.0
    companies = ["never seen", None] if poisoned else COMPANIES
    tags = ["new", "a"] if poisoned else TAGS
    hours = RNG.integers(-(10**9), 2 * 10**9, rows)
    when = [datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=int(s)) for s in hours]
    return {
        "lat": _floats(scale * RNG.normal(size=rows), 0.1),
        "rate": [None if r < 0.2 else float(v) for r, v in
                 zip(RNG.random(rows), RNG.choice([1.5, 2.5, 99.0 * scale], rows), strict=True)],
        "level": [None if v == 0 else int(v) for v in RNG.integers(0, 9, rows)],
        "company": [companies[i] for i in RNG.integers(0, len(companies), rows)],
        "payment": [companies[i] for i in RNG.integers(0, len(companies), rows)],
        "street": [companies[i] for i in RNG.integers(0, len(companies), rows)],
        "area": [None if v == 0 else int(v) for v in RNG.integers(0, 6, rows)],
        "epoch": [None if v % 7 == 0 else int(v) for v in hours],
        "iso": ["no date" if w.second < 9 else w.isoformat() for w in when],
        "words": [[tags[i] for i in RNG.integers(0, len(tags), RNG.integers(0, 4))] for _ in hours],
        "note": [f"row {i}" for i in range(rows)],
    }  # fmt: skip


TRAIN = _columns(ROWS, poisoned=False)
EVAL = _columns(MORE, poisoned=True)
BOTH = {name: [*TRAIN[name], *EVAL[name]] for name in TRAIN}
SPEC: dict[str, Any] = yaml.safe_load("""
groups:
  - {name: rate, columns: rate, impute: most_frequent, scale: none}
  - {name: lat, columns: lat, encode: {bucketize: {buckets: 5}}}
  - {name: level, columns: level, impute: most_frequent, encode: {integer: {size: 9}}}
  - {name: payment, columns: payment, impute: most_frequent, encode: {vocabulary: {top_k: 2}}}
  - {name: street, columns: street, impute: most_frequent, encode: {one_hot: {values: [red, blue]}}}
  - {name: time, columns: epoch, encode: {date: {parts: [hour, weekday], elapsed: true}}}
  - {name: day, columns: iso, encode: {date: {parts: month, cyclic: true, elapsed: true}}}
  - {name: words, columns: words, encode: {multi_hot: {top_k: 3}}}
crosses:
  - {name: company_area, columns: [company, area], encode: {hash: {buckets: 64}}}
  - {name: payment_area, columns: [payment, area], encode: {vocabulary: {top_k: 5}}}
  - {name: lat_area, columns: [lat, area], encode: {hash: {buckets: 1000}}}
passthrough: note
""")

UNPACKED = ("rate", "payment", "street", "time", "words")


@pytest.fixture(scope="module")
def run(run_transform: Any) -> Any:
    """Train rows and then poisoned rows, written with the statistics of the train rows alone."""
    return run_transform(SPEC, TRAIN, evaluation=BOTH, batch_size=50)


@pytest.fixture(scope="module")
def unpacked(run_transform: Any) -> Any:
    """Of each kind of output one: numbers, ids, columns named after what is learned, a cross."""
    groups = [group for group in SPEC["groups"] if group["name"] in UNPACKED]
    spec = {**SPEC, "groups": groups, "crosses": SPEC["crosses"][1:2], "packed": False}
    return run_transform(spec, TRAIN, batch_size=50)


def _column(run: Any, name: str) -> Any:
    (column,) = (c for c in run.layout.columns if c.name == name)
    return column


def _top(values: list[Any]) -> Any:
    counts = Counter(v for v in values if v not in (None, ""))
    return min(counts, key=lambda v: (-counts[v], v))


def test_most_frequent_is_that_of_train(run: Any, assets: Any) -> None:
    rate, level = _top(TRAIN["rate"]), _top(TRAIN["level"])
    expected = [rate if v is None else v for v in BOTH["rate"]]
    np.testing.assert_array_equal(run.column("rate"), np.asarray(expected, np.float32))
    assert run.column("level").tolist() == [level if v is None else v for v in BOTH["level"]]
    listed = assets(run)["payment"]
    assert listed[0] == _top(TRAIN["payment"])
    ids = run.column("payment")
    for value, id in zip(BOTH["payment"], ids.tolist(), strict=True):
        value = value or _top(TRAIN["payment"])
        assert id == (listed.index(value) if value in listed else 2)  # 2: unseen
    missing = np.asarray([not v for v in BOTH["street"]])
    top = _top(TRAIN["street"])
    for ending, value in (("=red", "red"), ("=blue", "blue")):
        expected = [(v or top) == value for v in BOTH["street"]]
        np.testing.assert_array_equal(run.column(f"street{ending}"), expected)
    assert not run.column("street_missing").any()
    bit = [c.name for c in run.layout.columns].index("street=red")
    mask = run.written["packed_missing"]
    np.testing.assert_array_equal((mask[:, bit // 32] >> (bit % 32)) & 1, missing)


def test_elapsed_time_is_a_z_score_of_days_over_trains_rows(run: Any) -> None:
    """Reference: NumPy in float64; minutes count, seconds do not."""

    def day(value: Any) -> float:
        if value in (None, "no date"):
            return NAN
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(f"{value}+00:00").timestamp()
        return value // 60 / (24 * 60)

    for name in ["epoch", "iso"]:
        days = np.asarray([day(value) for value in BOTH[name]])
        train = days[:ROWS][~np.isnan(days[:ROWS])]
        expected = np.where(np.isnan(days), 0.0, (days - train.mean()) / train.std())
        found = run.column(f"{name}_elapsed")
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        assert _column(run, f"{name}_elapsed").kind == "elapsed"
    angle = np.asarray([NAN if t == "no date" else int(t[5:7]) - 1 for t in BOTH["iso"]])
    for ending, wave in (("_sin", np.sin), ("_cos", np.cos)):
        expected = np.nan_to_num(wave(angle * 2 * np.pi / 12))
        np.testing.assert_allclose(run.column(f"iso_month{ending}"), expected, atol=1e-6)


def _ids_by_values(run: Any, name: str, *parts: list[Any]) -> dict[Any, set[int]]:
    """Values -> the ids of a cross of them; those of rows with a missing part as None."""
    found: dict[Any, set[int]] = {}
    for values, id in zip(zip(*parts, strict=True), run.column(name).tolist(), strict=True):
        found.setdefault(None if None in values or "" in values else values, set()).add(id)
    return found


def test_crosses(run: Any, assets: Any) -> None:
    areas = [area or None for area in BOTH["area"]]
    of = _ids_by_values(run, "company_area", BOTH["company"], areas)
    assert of.pop(None) == {64}
    assert all(len(found) == 1 and max(found) < 64 for found in of.values())
    assert len({min(found) for found in of.values()}) > 8  # both columns count
    listed = assets(run)["payment_area"]
    assert len(listed) == 5
    assert _column(run, "payment_area").vocabulary_size == 5 + 1 + 1
    of = _ids_by_values(run, "payment_area", BOTH["payment"], areas)
    assert of.pop(None) == {6}
    for (payment, area), ids in of.items():
        text = f"{payment}\x1f{area}"
        assert ids == {listed.index(text) if text in listed else 5}
    buckets = [bucket if bucket < 5 else None for bucket in run.column("lat").tolist()]
    of = _ids_by_values(run, "lat_area", buckets, areas)
    assert of.pop(None) == {1000}
    assert all(len(found) == 1 for found in of.values())
    column = _column(run, "lat_area")
    assert (column.kind, column.source, column.group) == ("hash", "lat x area", "lat_area")


def test_written_equals_transformed_raw_features_bit_for_bit(run: Any, unpacked: Any) -> None:
    """Every kind of output: packed and unpacked, passthrough too."""
    for each in (run, unpacked):
        each.check_serving()


def test_the_exported_signature_gives_what_was_written_bit_for_bit(run: Any, tmp_path: Any) -> None:
    import keras
    import tensorflow as tf

    from trainer_module.tfx.export import export_model

    floats = keras.Input((len(run.layout.names()),), name="packed_float")
    model = keras.Model({"packed_float": floats}, keras.layers.Dense(1)(floats))
    folder = str(tmp_path / "model")
    export_model(model, run.output, folder, inputs=["packed_float"])
    transform = tf.saved_model.load(folder).signatures["transform_features"]
    run.check_bits(transform(examples=tf.constant(run.records)))
    one_by_one = [transform(examples=tf.constant([r]))["packed_float"] for r in run.records[:20]]
    found = np.concatenate([row.numpy() for row in one_by_one])
    assert found.tobytes() == run.written["packed_float"][:20].tobytes()


def test_unpacked_has_the_same_columns(run: Any, unpacked: Any) -> None:
    of_spec = [each["columns"] for each in SPEC["groups"]] + ["company x area", "payment x area"]
    sources = dict.fromkeys(column.source for column in run.layout.columns)
    assert [*sources] == [*of_spec, "lat x area"]
    for name in ("packed_float", "packed_int"):
        positions = [c.position for c in run.layout.columns if c.output == name]
        assert positions == [*range(run.written[name].shape[1])]
    assert unpacked.layout.missing is None
    outputs = {column.output for column in unpacked.layout.columns}
    assert set(unpacked.written) == {*outputs, SPEC["passthrough"]}
    for column in unpacked.layout.columns:
        assert column.position == 0
        assert column.output == column.name or column.entry is not None  # learned: named later
        values = unpacked.written[column.output]
        assert values.shape == (ROWS, 1)
        np.testing.assert_array_equal(values[:, 0], run.column(column.name)[:ROWS], column.name)
    schema = unpacked.output.transformed_metadata.schema
    domains = {f.name: f.int_domain for f in schema.feature if f.HasField("int_domain")}
    sizes = {c.name: c.vocabulary_size for c in unpacked.layout.columns if c.vocabulary_size}
    assert {name: domain.max + 1 for name, domain in domains.items()} == sizes
    assert all(domain.min == 0 for domain in domains.values())


def test_a_request_without_any_column_is_served(run: Any) -> None:
    """Missing at serving is missing: the parts of a cross and a date too."""
    import tensorflow as tf

    spec = run.feature_spec
    nothing = {
        name: tf.SparseTensor(tf.zeros([0, 2], tf.int64), tf.zeros([0], spec[name].dtype), [1, 0])
        for name in spec
    }
    served = run.output.transform_raw_features(nothing)
    floats = dict(zip(run.layout.names(), served["packed_float"].numpy()[0], strict=True))
    ids = dict(
        zip(run.layout.names("packed_int"), served["packed_int"].numpy()[0], strict=True)
    )  # fmt: skip
    assert floats["rate"] == np.float32(_top(TRAIN["rate"]))
    assert floats["street=red"] == float(_top(TRAIN["street"]) == "red")
    assert floats["words_missing"] == 1.0
    assert floats["iso_month_sin"] == floats["iso_month_cos"] == 0.0
    assert ids["epoch_hour"] == 24
    assert ids["level"] == _top(TRAIN["level"])
    assert ids["company_area"] == 64
    assert ids["payment_area"] == 6
