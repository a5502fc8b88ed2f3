"""What holds for every encoder of the table, over two Beam runs of the same rows.

Reference: the definition in Python, exactly; `test_text.py` and `test_date.py` have those of
terms and dates. A new encoder needs a case in `CASES`.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from components.normalization_validator import check, columns, limits, statistics  # noqa: E402
from pipeline.features.features_explain import step_text  # noqa: E402
from transform import column_chains  # noqa: E402
from transform.encode.table import ENCODERS  # noqa: E402

ROWS, MORE = 240, 40
RNG = np.random.default_rng(5)
PICTURE = tf.io.encode_png(np.arange(12, dtype=np.uint8).reshape(2, 2, 3)).numpy()
Lines = list[str]


def _draw(values: list[Any], rows: int) -> list[Any]:
    return [values[i] for i in RNG.integers(0, len(values), rows)]


def _stamps(rows: int, year: int) -> list[str | None]:
    start = datetime.datetime(year, 1, 1)
    hours = RNG.integers(0, 8000, rows)
    return [
        None if h < 500 else (start + datetime.timedelta(hours=int(h))).isoformat() for h in hours
    ]


def _sets(values: list[Any], rows: int) -> list[list[Any]]:
    return [_draw(values, int(n)) for n in RNG.integers(0, 4, rows)]


TRAIN: dict[str, list[Any]] = {
    "words": _draw(["a", "b", "b", "c", "c", "c", "d", None, ""], ROWS),
    "ints": _draw([0, 1, 2, 7, None], ROWS),
    "floats": [None if v > 1.2 else float(np.float32(v)) for v in RNG.normal(size=ROWS)],
    "sets": _sets(["a", "b", "b", "c"], ROWS),
    "stamps": _stamps(ROWS, 2020),
    "texts": _draw(["good day", "bad day", "good night", None, ""], ROWS),
    "pictures": [PICTURE] * ROWS,
}
UNSEEN: dict[str, list[Any]] = {
    "words": _draw(["new", "a", None], MORE),
    "ints": _draw([-3, 99, 2, None], MORE),
    "floats": _draw([1e30, -1e30, 0.5, None], MORE),
    "sets": _sets(["new", "a"], MORE),
    "stamps": _stamps(MORE, 2031),
    "texts": _draw(["never seen", "good", None], MORE),
    "pictures": [PICTURE] * MORE,
}


class Case(NamedTuple):
    """An encoder's options, a column, and the definition: ending -> expected values.

    `expected` takes the values, those of train, and the lines of the column's vocabulary file.
    """

    encode: dict[str, Any]
    column: str
    expected: Callable[[list[Any], list[Any], Lines], dict[str, Any]] | None


def _learned(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    counts = Counter(v for v in train if v not in (None, ""))
    assert lines == sorted(counts, key=lambda v: -counts[v])[:2]
    places = {line: i for i, line in enumerate(lines)}
    return {"": [3 if v in (None, "") else places.get(v, 2) for v in values]}


def _listed(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    assert lines == []  # nothing is learned
    return {"": [3 if v is None else {7: 0, 1: 1}.get(v, 2) for v in values]}


def _integer(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    return {"": [6 if v is None else v if 0 <= v < 5 else 5 for v in values]}


def _quantiles(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    ordered = np.sort([v for v in train if v is not None])
    edges = ordered[[-(-ordered.size * i // 4) - 1 for i in (1, 2, 3)]]
    return {"": [4 if v is None else int(np.digitize(v, edges)) for v in values]}


def _given(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    return {"": [3 if v is None else int(np.digitize(v, [-0.5, 0.5])) for v in values]}


def _hashed(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    texts = [v or "" for v in values]
    wide = tf.strings.to_hash_bucket_fast(texts, np.iinfo(np.int64).max).numpy()
    return {"": [9 if not t else int(h % 9) for t, h in zip(texts, wide, strict=True)]}


def _one_hot(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    of = {f"={v}": [each == v for each in values] for v in (7, 0)}
    other = [each not in (7, 0, None) for each in values]
    return {**of, "_other": other, "_missing": [each is None for each in values]}


def _multi_hot(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    counts = Counter(v for row in train for v in row)
    top = sorted(counts, key=lambda v: -counts[v])[:2]
    of = {f"={v}": [v in row for row in values] for v in top}
    other = [any(v not in top for v in row) for row in values]
    return {**of, "_other": other, "_missing": [not row for row in values]}


def _hours(values: list[Any], train: list[Any], lines: Lines) -> dict[str, Any]:
    hours = [24 if v is None else datetime.datetime.fromisoformat(v).hour for v in values]
    return {"_hour": hours}


CASES = {  # each with a name that is odd to files, globs and TensorFlow: see below
    "vocabulary": Case({"vocabulary": {"top_k": 2}}, "words", _learned),
    "listed": Case({"vocabulary": {"values": [7, 1]}}, "ints", _listed),
    "integer": Case({"integer": {"size": 5}}, "ints", _integer),
    "bucketize": Case({"bucketize": {"buckets": 4}}, "floats", _quantiles),
    "given": Case({"bucketize": {"boundaries": [-0.5, 0.5]}}, "floats", _given),
    "hash": Case({"hash": {"buckets": 9}}, "words", _hashed),
    "one_hot": Case({"one_hot": {"values": [7, 0]}}, "ints", _one_hot),
    "multi_hot": Case({"multi_hot": {"top_k": 2}}, "sets", _multi_hot),
    "date": Case({"date": {"parts": ["hour"], "elapsed": True}}, "stamps", _hours),
    "text": Case({"text": {"top_k": 5, "max_terms": 3}}, "texts", None),
    "tokens": Case({"tokens": {"top_k": 2, "max_length": 2}}, "texts", None),
    "image": Case({"image": {"height": 2, "width": 2}}, "pictures", None),
}
ODD = "größe/[1] %*\\'\" {}"
CASES = {ODD.format(name): case for name, case in CASES.items()}
SPEC = {
    "groups": [{"name": n, "columns": n, "encode": case.encode} for n, case in CASES.items()],
}
BOTH = {name: [*TRAIN[case.column], *UNSEEN[case.column]] for name, case in CASES.items()}


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    train = {name: TRAIN[case.column] for name, case in CASES.items()}
    return run_transform(SPEC, train, evaluation=BOTH, batch_size=64)


@pytest.fixture(scope="module")
def backwards(run_transform: Any) -> Any:
    """The rows of the encoders that learn in the opposite order, in batches of another size."""
    names = [ODD.format(n) for n in ("vocabulary", "bucketize", "multi_hot", "date", "text")]
    spec = {"groups": [group for group in SPEC["groups"] if group["name"] in names]}
    train = {name: TRAIN[CASES[name].column][::-1] for name in names}
    both = {name: BOTH[name][::-1] for name in names}
    return run_transform(spec, train, evaluation=both, batch_size=100)


def _outputs(result: Any, name: str) -> list[Any]:
    return [column for column in result.layout.columns if column.source == name]


def check_encoder_contract(name: str, result: Any, lines: Lines) -> None:
    """Check the outputs of one case: names, values, ids in range, and the bits of missing rows."""
    encoder, outputs = ENCODERS[next(iter(CASES[name].encode))], _outputs(result, name)
    missing = np.asarray([v in (None, "", []) for v in BOTH[name]])
    for bit, column in enumerate(result.layout.columns):
        found = result.column(column.name)
        if column.source != name:
            continue
        word = result.written["packed_missing"][:, bit // 32]
        np.testing.assert_array_equal(word >> (bit % 32) & 1, missing, column.name)
        assert column.is_aspect == (encoder.is_aspect or column.kind == "missing_indicator")
        if column.vocabulary_size is not None:
            assert found.min() >= 0
            assert found.max() < column.vocabulary_size
            of_missing, of_present = set(found[missing]), set(found[~missing])
            assert len(of_missing) == 1, f"{column.name}: missing has one id"
            assert encoder.name == "text" or not of_missing & of_present
        elif encoder.name in ("one_hot", "multi_hot"):
            assert set(np.unique(found)) <= {0.0, 1.0}
        assert np.isfinite(found).all()
    expected = CASES[name].expected
    if expected is not None:
        of = expected(BOTH[name], TRAIN[CASES[name].column], lines)
        assert {name + ending for ending in of} <= {column.name for column in outputs}
        for ending, values in of.items():
            np.testing.assert_array_equal(result.column(name + ending), values, name + ending)


def test_encoder_contract(result: Any, assets: Any) -> None:
    assert {next(iter(case.encode)) for case in CASES.values()} == set(ENCODERS)
    files = {c.source: c.vocabulary or c.entry_of for c in result.layout.columns}
    for name in CASES:
        lines = assets(result)[files[name]] if files.get(name) else []
        check_encoder_contract(name, result, lines)


def test_the_order_of_rows_does_not_matter(result: Any, backwards: Any) -> None:
    names = [column.name for column in backwards.layout.columns]
    assert len({column.source for column in backwards.layout.columns}) == 5
    for name in names:
        found, expected = backwards.column(name)[::-1], result.column(name)
        if expected.dtype == np.float32:  # sums of another order
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found, expected, name)


def test_serving_computes_what_was_written_bit_for_bit(result: Any) -> None:
    result.check_serving(alone=(0, 7, ROWS + 1))


def test_every_encoder_is_explained(result: Any) -> None:
    texts = {chain.column: step_text(chain.steps[-1]) for chain in column_chains(result.uri)}
    for name, case in CASES.items():
        assert texts[name].startswith(f"encode {next(iter(case.encode))}: "), texts[name]
    assert texts[ODD.format("vocabulary")].endswith("values 2, ids 4")
    assert texts[ODD.format("integer")].endswith("ids 7")


def test_the_validator_checks_the_range_of_ids(result: Any) -> None:
    features = columns.read_feature_set(result.uri)
    compute = statistics.ComputeStatistics(features, "train")
    for added in (0, 1000):
        values = []
        for each in features.features:
            if each.image:
                values.append(columns.Values(np.ones([256, 3], np.int64), None, 0))
                continue
            x = result.written[each.name][:ROWS, [c.position for c in each.columns]].astype(float)
            values.append(columns.Values(x + added * (each.name != "packed_float"), None, 0))
        batch = columns.Batch(ROWS, tuple(values))
        state = compute.add_input(compute.create_accumulator(), batch)
        measured = compute.extract_output(state).columns
        found = check.find_violations({"train": measured}, limits.NormalizationLimits())
        ids = {each.name for each in measured if each.is_id}
        violated = {each.column for each in found if each.limit == "normalization.ignore"}
        assert violated == (ids if added else set())
