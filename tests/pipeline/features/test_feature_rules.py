"""Each rule on facts that just meet it and just miss it; the facts are written by hand."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline.cli.cli import main
from pipeline.config.config_file import load_config
from pipeline.features.column_facts import ColumnFacts, Numbers, Texts
from pipeline.features.dates import number_dates, text_dates
from pipeline.features.feature_rules import (
    TableFacts,
    _text_statistics,
    keeps_numbers,
    label_of,
    propose,
)

ROWS = 10_000
RNG = np.random.default_rng(5)
TABLE = TableFacts(frozenset({"x"}))
DAY = ("weekday", "day")
SHAPES: dict[str, np.ndarray] = {
    "normal": RNG.normal(50.0, 10.0, ROWS),
    "even": RNG.uniform(3.0, 9.0, ROWS),
    "log_normal": RNG.lognormal(1.0, 1.0, ROWS),
    "negative_skew": -RNG.lognormal(1.0, 1.0, ROWS),
    "large_skew": RNG.lognormal(12.0, 1.0, ROWS),
    "outliers": np.where(np.arange(ROWS) == 7, 1e6, RNG.normal(50.0, 10.0, ROWS)),
    "two_humps": np.r_[RNG.normal(0, 1, ROWS * 3 // 4), RNG.normal(60, 1, ROWS // 4)],
    "flags": (np.arange(ROWS) % 3 == 0).astype(float),
}


def numbers(values: np.ndarray) -> Numbers:
    return Numbers(
        minimum=float(values.min()),
        maximum=float(values.max()),
        mean=float(values.mean()),
        std=float(values.std()),
        zeros=int(np.sum(values == 0)),
        percentiles=tuple(np.percentile(values, np.arange(101)).tolist()),
        distinct=len(np.unique(values)),
        whole=bool(np.all(values == np.floor(values))),
    )


def a_float(shape: str, **more: Any) -> ColumnFacts:
    facts = ColumnFacts("x", "float", ROWS, 0, numbers=numbers(SHAPES[shape]))
    return replace(facts, **more)


def an_int(values: np.ndarray, name: str = "x") -> ColumnFacts:
    counts = sorted(
        zip(*np.unique(values, return_counts=True), strict=True), key=lambda pair: -pair[1]
    )
    top = tuple((str(value), int(count)) for value, count in counts[:1000])
    texts = Texts(len(counts), top)
    low, high = int(values.min()), int(values.max())
    return ColumnFacts(
        *(name, "int", len(values), 0),
        numbers=numbers(values),
        texts=texts,
        dates=number_dates(np.unique(values).tolist(), low, high),
    )


def a_text(values: list[str], name: str = "x", distinct: int | None = None) -> ColumnFacts:
    top = tuple((value, ROWS // len(values)) for value in values)
    texts = Texts(distinct or len(values), top)
    return ColumnFacts(name, "string", ROWS, 0, texts=texts, dates=text_dates(values))


def options(facts: ColumnFacts, table: TableFacts = TABLE) -> dict[str, Any] | None:
    step = propose(facts, table).step
    return None if step is None else step.options


def date(*parts: str, **more: Any) -> dict[str, Any]:
    return {"encode": {"date": {"parts": list(parts), **more}}}


def one_hot(*values: str) -> dict[str, Any]:
    return {"encode": {"one_hot": {"values": list(values)}}}


def test_scales_follow_skew_and_outliers() -> None:
    for shape, expected in [
        ("normal", {"scale": "z_score"}),
        ("even", {"scale": "min_max"}),
        ("log_normal", {"scale": ["log1p", "z_score"]}),
        ("negative_skew", {"scale": "gaussian"}),
        ("large_skew", {"scale": "gaussian"}),  # its logarithm is too large for a network
        ("two_humps", {"scale": "gaussian"}),
        ("outliers", {"clip": {"quantiles": [0.001, 0.999]}, "scale": "robust"}),
        ("flags", {"scale": "none"}),
    ]:
        assert options(a_float(shape)) == expected, shape


def test_imputation_follows_the_share_of_missing_values() -> None:
    rare = replace(a_float("normal"), missing=99)
    often = replace(a_float("normal"), missing=100)
    assert options(rare) == {"impute": "mean", "scale": "z_score"}
    assert options(often) == {"impute": "mean", "missing_indicator": True, "scale": "z_score"}
    taken = TableFacts(frozenset({"x", "x_missing"}))
    assert options(often, taken) == {"impute": "mean", "scale": "z_score"}
    skewed = options(replace(a_float("log_normal"), missing=1))
    assert skewed == {"impute": "median", "scale": ["log1p", "z_score"]}
    assert options(replace(a_float("normal"), missing=9_501)) is None


def test_one_value_or_none_is_a_mark() -> None:
    """`has_pool`: "yes" or nothing. Which rows have it may predict the label."""
    text, whole = a_text(["yes"]), an_int(np.full(ROWS, 3))
    assert options(replace(text, missing=5_000)) == one_hot("yes")
    assert options(replace(whole, missing=5_000)) == one_hot("3")
    number = replace(whole, type="float", texts=None, missing=5_000)
    assert options(number) == {"impute": "mean", "missing_indicator": True, "scale": "z_score"}
    assert options(number, TableFacts(frozenset({"x", "x_missing"}))) is None
    for each in (text, whole, number):
        assert options(replace(each, missing=5)) is None
        assert options(replace(each, missing=9_900)) is None


def test_ints_are_flags_codes_ids_dates_or_numbers() -> None:
    for values, name, expected in [
        (np.arange(ROWS) % 2, "x", {"scale": "none"}),
        (np.arange(ROWS) % 3 - 1, "x", one_hot("-1", "0", "1")),
        (np.arange(ROWS) % 25 + 1, "store", {"encode": {"integer": {"size": 26}}}),
        (np.arange(ROWS) % 700 * 100 + 10_000, "zip_code", {"encode": {"vocabulary": {}}}),
        (np.arange(ROWS) + 5, "x", None),  # a dense range, each once
        (np.full(ROWS, 3), "x", None),
        (1_600_000_000 + 4_000 * np.arange(ROWS), "x", date("hour", *DAY, "month", "year")),
    ]:
        assert options(an_int(values, name)) == expected, (name, values[:9])


@pytest.mark.parametrize(("rows", "keeps"), [(239, True), (240, False)])
def test_whole_numbers_stay_numbers_with_few_rows_for_each_value(rows: int, keeps: bool) -> None:
    """8 columns of 10 values: 3 rows of each class for each of the 80 values."""
    column = an_int(np.arange(ROWS) % 10)
    others = [an_int(np.arange(ROWS) % 2), a_text(["a", "b", "c"])]
    for kind, label in (
        ("binary", (np.arange(ROWS) < rows).astype(int)),
        ("multiclass", np.arange(4 * rows) % 4),
        ("regression", np.arange(rows) % 100),
    ):
        assert keeps_numbers([*[column] * 8, *others], an_int(label), kind) == keeps
    found: Any = options(column, replace(TABLE, keeps_numbers=keeps))
    assert ("scale" in found, "encode" in found) == (keeps, not keeps)


def test_texts_are_categories_dates_or_left_out() -> None:
    for values, distinct, expected in [
        (list("abc"), None, one_hot("a", "b", "c")),
        ([f"v{i}" for i in range(11)], None, {"encode": {"vocabulary": {}}}),
        ([f"v{i}" for i in range(1000)], 1001, {"encode": {"hash": {"buckets": 1024}}}),
        ([f"v{i}" for i in range(1000)], 5001, None),  # more than half of the rows
        ([f"{i}.5" for i in range(20)] + ["N/A"], None, None),
        (["2020-01-31", "2020-02-30"], None, None),  # of two days one is none
        (["2020-01-01T10:00Z", "2020-01-02 11:00:30+02:00"], None, date("hour", *DAY)),
        (["31.01.2020", "1.2.2021"], None, date(*DAY, "month", "year", format="%d.%m.%Y")),
    ]:
        assert options(a_text(values, distinct=distinct)) == expected, values[:3]


def test_what_is_left_out_says_why() -> None:
    for facts, reason in [
        (a_text([f"{i}.5" for i in range(20)] + ["N/A"]), "texts like 'N/A'"),
        (a_text(["31.01.2020", "1/2/2021"]), "31.01.2020"),
        (replace(a_float("normal"), missing=ROWS), "no row has a value"),
    ]:
        assert reason in propose(facts, TABLE).measured


def test_an_output_name_that_is_a_column_is_avoided() -> None:
    table = TableFacts(frozenset({"x", "x_other", "x_hour"}))
    assert options(a_text(list("abc")), table) == {"encode": {"vocabulary": {}}}
    dates = a_text(["2020-01-01T10:00", "2020-01-02T11:00"])
    assert options(dates, table) == date(*DAY)


def test_rows_of_several_values_are_sets() -> None:
    words = replace(a_text([f"v{i}" for i in range(11)]), several=True)
    assert options(words) == {"encode": {"multi_hot": {"top_k": 11}}}
    assert options(replace(a_float("normal"), several=True)) is None


def shares(*weights: float) -> np.ndarray:
    return np.random.default_rng(1).choice(len(weights), 3_000, p=np.array(weights) / sum(weights))


def codes(values: np.ndarray) -> ColumnFacts:
    """Without a gap in their range."""
    gaps = np.setdiff1d(np.arange(values.max() + 2), values)
    return an_int(values[values < gaps[0]])


def test_the_label_s_kind_follows_its_values() -> None:
    many_zeros = np.where(RNG.random(3_000) < 0.4, 0, RNG.poisson(4.0, 3_000))
    for facts, expected in [
        (a_float("flags"), {"kind": "binary"}),
        (a_float("normal"), {"kind": "regression"}),
        (an_int(np.arange(ROWS) % 2 + 1), {"kind": "binary", "positive": 2}),
        (an_int(np.arange(ROWS) % 5), {"kind": "multiclass"}),
        (an_int(np.arange(ROWS) % 5 + 1), {"kind": "regression"}),
        (a_text(["no", "yes"]), {"kind": "binary", "positive": "yes"}),
        (a_text(list("abc")), {"kind": "multiclass"}),
        (codes(RNG.poisson(6.0, 3_000)), {"kind": "regression"}),
        (codes(many_zeros), {"kind": "regression"}),
        (codes(RNG.poisson(3.0, 100)), {"kind": "multiclass"}),  # too few rows
        (codes(shares(7, 2, 1)), {"kind": "multiclass"}),
        (codes(shares(2, 1, 1, 2, 2, 6, 6, 14, 25, 20, 20)), {"kind": "multiclass"}),  # ratings
    ]:
        assert label_of(facts) == {"column": "x", **expected}


def test_what_cannot_be_learned_is_no_label() -> None:
    for facts, message in [
        (an_int(np.full(ROWS, 3)), "constant, nothing can be learned"),
        (replace(a_float("normal"), missing=ROWS), "no row has a value"),
        (a_text(list("abc"), distinct=9_000), "9,000 different texts in 10,000 rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            label_of(facts)


COMMON = "the of a to in and is it was not very good bad film".split()  # noqa: SIM905
RARE = [f"word{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}" for i in range(3000)]


def sentence(rng: random.Random, words: int = 12) -> str:
    parts = [rng.choice(COMMON if rng.random() < 0.7 else RARE) for _ in range(words)]
    return " ".join(parts).capitalize() + "."


def test_sentences_are_free_text() -> None:
    rng = random.Random(7)
    rows = [[sentence(rng)] for _ in range(600)]
    found: Any = _text_statistics([None, *rows, None])
    assert found.words == pytest.approx(12)
    # Counted here: different words of a row, of which others hold each at least 3 times.
    held = [set(row[0].lower().rstrip(".").split()) for row in rows]
    often = {w for w in set().union(*held) if 3 <= sum(w in row for row in held) <= 540}
    expected = sum(len(row & often) for row in held) / sum(map(len, held))
    assert (found.again, found.least) == (pytest.approx(expected), 3)
    assert found.max_terms == 32  # 12 words and some of their pairs
    assert _text_statistics([[row[0].encode()] for row in rows]) == found


def test_other_texts_are_not_and_characters_without_spaces_are_words() -> None:
    rng = random.Random(7)
    for make, words in [
        (lambda: str(uuid.UUID(int=rng.getrandbits(128))), None),
        (lambda: f"{rng.choice(RARE).title()}, Mr. {' '.join(rng.choices(COMMON, k=2))}", None),
        (lambda: " ".join(f"x{rng.getrandbits(64)}" for _ in range(8)), None),
        (lambda: "".join(rng.choices("今日は天気がいい火事だ", k=9)), pytest.approx(9)),
    ]:
        found = _text_statistics([[make()] for _ in range(600)])
        assert (found and found.words) == words


def test_init_proposes_it(tmp_path: Any) -> None:
    """Also where many texts come again: a hash of the whole text would share nothing."""
    rng = random.Random(3)
    texts = [sentence(rng, 20) for _ in range(1_200)]
    lines = [f'{i % 2},"{texts[i % 1_200]}",{rng.choice(RARE)} {i}' for i in range(3_000)]
    (tmp_path / "t.csv").write_text("\n".join(["label,review,name", *lines]), encoding="utf-8")
    output = tmp_path / "t.yaml"
    assert main(["init", str(tmp_path / "t.csv"), "--label", "label", "--output", str(output)]) == 0
    (group,) = load_config(output).features.groups
    assert (group.name, group.columns) == ("tokens", ("review",))
    assert group.encode.tokens
    assert "different texts of 20 words on average" in output.read_text()
