"""Any name of a column, and any text in it, through every encoder and scaler, as at serving."""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROWS = 120
NAMES = [
    "größe", "a/b", "c[0]", "1st", "class", "x:0 %", "v*", "A/B", "back\\slash'\"?", "n" * 300,
]  # fmt: skip
TEXTS = ["a", "b\nc", "b\\nc", "d\r", " ", "ü"]  # as frequent as they stand to the right
RNG = np.random.default_rng(3)
COUNTS = [34, 28, 22, 16, 12, 7]
WORDS = ["", *(TEXTS[int(i)] for i in RNG.permutation(np.repeat(range(6), COUNTS)))]
LABELS = [word or "a" for word in WORDS]
NUMBERS = [float(np.float32(v)) for v in RNG.normal(5, 2, ROWS)]
INTS = [int(v) for v in RNG.integers(0, 5, ROWS)]

NUMERIC: list[dict[str, Any]] = [
    *({"scale": s} for s in ("z_score", "min_max", "robust", "gaussian", "log1p", "none")),
    {"scale": {"z_score": {"by": "kéy [1]"}}},
    {"encode": {"bucketize": {"buckets": 4}}, "impute": "most_frequent"},
    {"encode": {"integer": {"size": 5}}},
    {"encode": {"date": {"parts": ["hour"]}}},
]
TEXTUAL: list[dict[str, Any]] = [
    {"encode": {"vocabulary": {}}},
    {"encode": {"vocabulary": {"top_k": 4}}, "impute": "most_frequent"},
    {"encode": {"hash": {"buckets": 7}}},
    {"encode": {"one_hot": {"values": ["a", "b\nc", "d\r"]}}},
    {"encode": {"multi_hot": {"top_k": 4}}},
]


def _spec_and_data() -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Each name under a numeric and a textual step in turn, so that every step has odd names."""
    columns: dict[str, list[Any]] = {"kéy [1]": WORDS, "täg": WORDS, "raw in": NUMBERS}
    groups = []
    for kinds, prefix in ((NUMERIC, ""), (TEXTUAL, "t ")):
        turn = itertools.cycle(kinds)
        of: dict[int, list[str]] = {}
        for name in NAMES:
            of.setdefault(kinds.index(next(turn)), []).append(prefix + name)
        for at, names in of.items():
            group = {"name": f"{prefix}größe/{at}", "columns": names, **kinds[at]}
            kind = next(iter(group.get("encode", {})), "")
            values = INTS if kind in ("integer", "date") else WORDS if prefix else NUMBERS
            columns |= dict.fromkeys(names, values)
            groups.append(group)
    groups.append({"name": "derived", "columns": ["neü/[a b]"], "scale": "z_score"})
    spec = {
        "derive": "derive_for_name_tests.derive",
        "groups": groups,
        "crosses": [
            {"name": "kreuz ß[0]", "columns": ["t größe", "t a/b"], "encode": {"vocabulary": {}}},
            {"name": "x*y", "columns": ["t v*", "t c[0]"], "encode": {"hash": {"buckets": 9}}},
        ],
        "label": {"column": "läbel [y]/1", "kind": "multiclass"},
        "weight": "gewicht %",
        "passthrough": ["täg"],
    }
    columns["läbel [y]/1"] = LABELS
    columns["gewicht %"] = [1.0] * ROWS
    return spec, columns


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    def derive(inputs: dict[str, Any]) -> dict[str, Any]:
        from transform import dense_numbers

        return {"neü/[a b]": 2.0 * dense_numbers(inputs["raw in"])}

    module = types.ModuleType("derive_for_name_tests")
    module.__dict__.update(derive=derive)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        return run_transform(*_spec_and_data())


def test_every_column_is_written_as_its_step_says(result: Any) -> None:
    names = {column.source for column in result.layout.columns}
    assert names >= {prefix + name for name in NAMES for prefix in ("", "t ")}
    x = np.asarray(NUMBERS)
    np.testing.assert_allclose(
        result.column("größe"), (x - x.mean()) / x.std(), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        result.column("neü/[a b]"), (x - x.mean()) / x.std(), rtol=1e-5, atol=1e-6
    )
    assert not any(
        np.isnan(values).any() for values in result.written.values() if values.dtype.kind == "f"
    )


def test_a_text_with_a_line_break_has_an_id_of_its_own(result: Any) -> None:
    ids = dict(zip(WORDS, result.column("t größe").tolist(), strict=True))
    assert ids == {**{text: i for i, text in enumerate(TEXTS)}, "": len(TEXTS) + 1}


def test_a_class_with_a_line_break_is_a_class(result: Any) -> None:
    assert result.layout.label.classes == len(TEXTS)
    ids = result.written["läbel [y]/1"][:, 0]
    assert sorted(set(ids.tolist())) == list(range(len(TEXTS)))
    assert dict(zip(LABELS, ids.tolist(), strict=True)) == {t: i for i, t in enumerate(TEXTS)}


def test_learned_values_with_line_breaks_have_columns_of_one_line(result: Any) -> None:
    source = "t " + NAMES[4]
    names = {c.name for c in result.layout.columns if c.source == source}
    escaped = {"a": "a", "b\nc": "b\\nc", "b\\nc": "b\\\\nc", "d\r": "d\\r"}  # the top 4
    assert names == {f"{source}={e}" for e in escaped.values()} | {
        f"{source}_other",
        f"{source}_missing",
    }
    for value, shown in escaped.items():
        held = [w == value for w in WORDS]
        np.testing.assert_array_equal(result.column(f"{source}={shown}"), held)


def test_serving_gives_the_same_bits(result: Any) -> None:
    result.check_serving(alone=(0,))
