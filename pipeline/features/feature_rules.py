"""Choose the step for a column, with the reason: the rules of `init`.

A pure function from a column's statistics to a proposal. The first matching rule applies:

    no value, mostly missing                                     left out
    encoded images, or paths of image files                      encode: image
    constant, a unique value per row                             left out
    dates                                                        encode: date
    few distinct values                                          encode: one_hot
    codes                                                        encode: integer or vocabulary
    free text                                                    encode: text; tokens where it is
                                                                 the only column
    other texts                                                  encode: vocabulary or hash
    numbers                                                      scale, by skew and outliers

Skew is Bowley's, of the 10th, 50th and 90th percentile, in [-1, 1]. It is robust against outliers
and can be computed without the rows.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.common.json_types import JsonObject
from pipeline.common.number_text import is_number, short_number
from pipeline.common.sources import SUFFIXES
from pipeline.data.tables import Rows
from pipeline.features.column_facts import ColumnFacts, Numbers, Texts
from pipeline.features.dates import EPOCHS, DateFacts
from pipeline.features.id_rules import (
    id_reason,
    is_code,
    is_consecutive,
    is_id_name,
    repeated_id_reason,
)
from transform.spec.encoders import Text

_OUTLYING = 6.0  # interquartile ranges beyond the quartiles


def _bowley(low: float, middle: float, high: float) -> float:
    """Return Bowley's skew of a low, the middle and a high quantile, in [-1, 1]."""
    return (low + high - 2.0 * middle) / (high - low) if high > low else 0.0


_COME_AGAIN = 0.5  # share of the words that are in `_AGAIN` rows or more, but not in nearly all
_AGAIN, _AGAIN_SHARE = 3, 0.001
_LONG_TEXT, _TOKEN_ROWS = 8.0, 2_000  # words and rows from which a transformer may learn an order
_MOST_ROWS = 5_000
_MOST_CHARACTERS = 10_000  # of a text
_FEWEST_TERMS, _MOST_TERMS = 16, 256
# Approximates the tokens of transform/encode/words.py, which needs TensorFlow.
_ALONE = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


class _FreeText(NamedTuple):
    """Statistics of a column of free text: `again` is the share of words in `least` or more rows.

    `max_terms` positions, a power of two, hold the known terms of 95 % of the texts.
    """

    words: float
    again: float
    least: int
    max_terms: int


def _text_statistics(rows: Rows) -> _FreeText | None:
    """Return the statistics of a sample of a text column; None if it is not free text."""
    present = [row[0] for row in rows if row]
    texts = [_plain(text) for text in present[:: max(1, -(-len(present) // _MOST_ROWS))]]
    if not texts:
        return None
    # Words have a letter, and spaces between them: a URL or a UUID is one.
    words = sum(any(map(str.isalpha, word)) for text in texts for word in text.split()) / len(texts)
    if words < 5.0:
        return None
    single_words = [re.findall(r"[^\W_]+", text) for text in texts]
    terms = [{*row, *map("_".join, itertools.pairwise(row))} for row in single_words]
    in_rows = Counter(term for row in terms for term in row)
    least = max(_AGAIN, round(_AGAIN_SHARE * len(texts)))
    single = {term: count for term, count in in_rows.items() if "_" not in term}
    most = 0.9 * len(texts)
    come_again = sum(n for n in single.values() if least <= n <= most)
    again = come_again / max(1, sum(single.values()))
    if again < _COME_AGAIN:
        return None
    known = sorted(sum(in_rows[term] >= 2 for term in row) for row in terms)
    wanted = known[int(0.95 * (len(known) - 1))]
    places = _FEWEST_TERMS
    while places < min(wanted, _MOST_TERMS):
        places *= 2
    return _FreeText(words, again, least, places)


def _plain(value: object) -> str:
    return _ALONE.sub(r" \g<0> ", _text_of(value)[:_MOST_CHARACTERS].lower())


def _text_of(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


_INDICATOR_SHARE = 0.01  # at least this share: the model gets an indicator of missing values
_OWN_VALUE = 0.5  # distinct texts per row; with more, a text identifies its row
_FEW = 10  # distinct values that get a 0/1 column each
_MANY = 1_000  # distinct values that get separate ids
_CODES = 100  # distinct ints that count as codes if each is frequent
_ROWS_PER_CODE = 20
_ROWS_PER_VALUE = 3  # of a 0/1 column
_SKEWED = 0.3
_FLAT = 2.3  # (99 % - 1 %) / (75 % - 25 %): uniform 1.96, normal 3.45
_LOG_LARGEST = 8.0  # log(1 + x) of the 99th percentile: larger is too large for a network
_NEAR_ZERO = 30  # whole numbers up to it, either way, are few: many rows have the median
_FEWEST_COUNTS = 6  # distinct values: fewer may be classes in the order of their frequency
_THIN = 0.03  # rows with the largest count, of those with the most frequent one
_SURE_FIRST, _SURE_LAST = 946_684_800, 2_208_988_800  # 2000 and 2040, in seconds since 1970
_OTHER_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})([ T].*)?|\d{4}[./]\d{1,2}[./].*")
_DATE_NAME = re.compile(r"(^|_)(time|date|timestamp|datetime|epoch|ts|at)(_|$)", re.IGNORECASE)


class _Step(NamedTuple):
    """The step of a group: its name, its options in the YAML, and the rule, in a sentence."""

    name: str
    options: JsonObject
    why: str


class Proposal(NamedTuple):
    """The proposed step for a column, and the numbers that decided; no step: leave it out.

    `group`: rows with equal values belong in the same split. `tokens`: the step for a text that is
    the only feature. `paths`: the column with the paths of the files that `column` is read from.
    """

    column: str
    step: _Step | None
    measured: str
    group: bool = False
    tokens: _Step | None = None
    paths: str | None = None


@dataclass(frozen=True)
class TableFacts:
    """Inputs of the rules in addition to the column.

    Attributes:
        names: Names of all columns.
        values: Column -> its rows in a sample.
        keeps_numbers: Whether whole numbers with few values stay numbers; see `keeps_numbers`.
        folder: The folder of the table, which paths are relative to.
    """

    names: Collection[str] = field(default_factory=frozenset)
    values: Mapping[str, Rows] = field(default_factory=dict)
    keeps_numbers: bool = False
    folder: Path = Path()


def propose(facts: ColumnFacts, table: TableFacts) -> Proposal:
    """Return the step for a column."""
    if facts.present == 0:
        return Proposal(facts.name, None, "no row has a value")
    if facts.missing_share > 0.95:
        return Proposal(facts.name, None, f"{facts.missing_share:.1%} of the rows have no value")
    if (image := _image(facts, table)) is not None:
        return image
    if facts.several:
        return _several(facts)
    if _is_constant(facts):
        return _constant(facts, table)
    if facts.numbers is None:
        assert facts.texts is not None
        if facts.dates is None and (repeated := repeated_id_reason(facts)) is not None:
            return Proposal(facts.name, None, repeated, group=True)
        return _text(facts, facts.texts, table)
    if facts.dates is not None and has_dates(facts):  # ints since 1970, or such as 20130506
        return _date(facts, facts.dates, table)
    if (reason := id_reason(facts)) is not None:
        return Proposal(facts.name, None, reason)
    if (repeated := repeated_id_reason(facts)) is not None:
        return Proposal(facts.name, None, repeated, group=facts.type == "int")
    if facts.texts is not None:
        codes = _codes(facts, facts.numbers, facts.texts, table)
        if codes is not None:
            return codes
    return _number(facts, facts.numbers, table)


def label_of(facts: ColumnFacts) -> JsonObject:
    """Return the `label:` for a column.

    Raises:
        ValueError: The column has nothing to learn, or cannot be a label.
    """
    name = facts.name
    if facts.present == 0:
        raise ValueError(f"--label={name}: no row has a value; use another column")
    if facts.several:
        raise ValueError(f"--label={name}: rows hold several values; use a column with one")
    values = facts.texts
    if _is_constant(facts):
        raise ValueError(f"--label={name}: constant, nothing can be learned; use another column")
    if facts.numbers is None:
        assert values is not None
        if values.distinct == 2:  # the rarer value is the positive one
            return {"column": name, "kind": "binary", "positive": values.top[-1][0]}
        if values.distinct > _MANY or values.distinct > _OWN_VALUE * facts.present:
            raise ValueError(
                f"--label={name}: {values.number} different texts in {facts.present:,} rows "
                "are not classes; "
                + ("use another column" if values.beyond is None else _beyond(values.beyond))
            )
        return {"column": name, "kind": "multiclass"}
    low, high = facts.numbers.minimum, facts.numbers.maximum
    if _zero_or_one(facts.numbers):
        return {"column": name, "kind": "binary"}
    if values is not None and values.distinct == 2:
        return {"column": name, "kind": "binary", "positive": int(high)}
    if values is not None and low == 0 and high < _CODES and values.distinct == high + 1:
        return {"column": name, "kind": "regression" if _are_counts(values) else "multiclass"}
    return {"column": name, "kind": "regression"}


def is_small_whole(facts: ColumnFacts) -> bool:
    """Return whether all values are whole numbers near 0, such as goals, scores and differences.

    Their median is the value of many rows, which a prediction of the mean misses by less than 1.
    """
    numbers = facts.numbers
    if numbers is None or not numbers.whole:
        return False
    return max(-numbers.minimum, numbers.maximum) <= _NEAR_ZERO


def _are_counts(values: Texts) -> bool:
    """Return whether whole numbers from 0 on, without gaps, count something and are no classes.

    Counts have at least `_FEWEST_COUNTS` values, and 20 rows for each on average. Above 0, which
    may be frequent, they rise to one peak in the lower half and then fall, except for chance, to
    hardly any row with the largest. Classes rarely have this order, and ratings often are the
    largest.
    """
    rows = np.array([count for _, count in sorted(values.top, key=lambda each: int(each[0]))])
    largest, least = len(rows) - 1, max(200, _ROWS_PER_CODE * len(rows))
    if not values.exact or largest + 1 < _FEWEST_COUNTS or rows.sum() < least:
        return False
    positive = rows[1:]
    peak = int(positive.argmax())
    rises = np.diff(positive) * np.where(np.arange(len(positive) - 1) < peak, 1, -1)
    chance = 3 * np.sqrt(positive[1:] + positive[:-1])
    is_thin = rows[-1] <= max(_THIN * rows.max(), 2)
    return bool(is_thin and 2 * (peak + 1) <= largest and (rises >= -chance).all())


def keeps_numbers(columns: Iterable[ColumnFacts], label: ColumnFacts, kind: str) -> bool:
    """Return whether there are too few rows for a 0/1 column per value of whole numbers.

    A model of 0/1 columns does not know that 3 is between 2 and 4. With fewer than
    `_ROWS_PER_VALUE` rows of each class for a value, it learns the noise of each.
    """
    values = sum(
        each.texts.distinct
        for each in columns
        if each.type == "int" and each.texts is not None and 2 < each.texts.distinct <= _FEW
    )
    rows = label.present
    if kind == "binary" and label.texts is not None:
        rows = label.texts.top[-1][1]
    elif kind == "multiclass" and label.texts is not None:
        rows //= label.texts.distinct
    return rows < _ROWS_PER_VALUE * values


def _is_constant(facts: ColumnFacts) -> bool:
    """Return whether all present values are equal."""
    numbers, texts = facts.numbers, facts.texts
    equal = numbers is not None and numbers.minimum == numbers.maximum
    return equal or (texts is not None and texts.distinct == 1)


def _constant(facts: ColumnFacts, table: TableFacts) -> Proposal:
    """Return the step of a constant: a mark ("yes" or missing) still separates rows."""
    numbers = facts.numbers
    value = short_number(numbers.minimum, 6) if numbers else _shown(facts.texts.top[0][0])  # type: ignore
    if facts.missing_share < _INDICATOR_SHARE:
        return Proposal(facts.name, None, f"constant: always {value}")
    if numbers is None or facts.type == "int":
        assert facts.texts is not None
        return _category(facts, facts.texts, table)
    if f"{facts.name}_missing" in table.names:
        return Proposal(facts.name, None, f"constant: always {value} or missing")
    step = _Step(
        "marks",
        {"impute": "mean", "missing_indicator": True, "scale": "z_score"},
        "One value or missing: a 0/1 column marks the missing values.",
    )
    return Proposal(facts.name, step, f"{value}; {facts.missing_share:.1%} missing")


_IMAGE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8")
_CHECKED_FILES = 10


def _image(facts: ColumnFacts, table: TableFacts) -> Proposal | None:
    """Return the step of encoded images, or of files that a column names; None for others."""
    values = [row[0] for row in table.values.get(facts.name, ()) if row]
    if facts.numbers is not None or not values:
        return None
    step = _Step(
        "image",
        {"encode": {"image": {"height": 64, "width": 64, "channels": 3}}},
        "Images, which are decoded and resized: set the size that your model needs.",
    )
    if all(isinstance(value, bytes) and value.startswith(_IMAGE_STARTS) for value in values):
        return Proposal(facts.name, step, f"{len(values):,} encoded images")
    if not all(SUFFIXES.get(Path(_text_of(value)).suffix.lower()) == "images" for value in values):
        return None
    if not all((table.folder / _text_of(value)).is_file() for value in values[:_CHECKED_FILES]):
        return None
    name = "image" if "image" not in table.names else f"{facts.name}_image"
    return Proposal(name, step, f"files that {facts.name} names", paths=facts.name)


def _several(facts: ColumnFacts) -> Proposal:
    if facts.texts is None:
        return Proposal(facts.name, None, "rows hold several floats; derive columns from them")
    if facts.texts.distinct <= _FEW:
        option: JsonObject = {"values": _listed(facts.texts)}
    else:
        option = {"top_k": min(facts.texts.distinct, _CODES)}
    step = _Step(
        facts.name,
        {"encode": {"multi_hot": option}},
        "Rows hold several values: a 0/1 column for each.",
    )
    return Proposal(facts.name, step, f"{facts.texts.number} different values")


def _text(facts: ColumnFacts, texts: Texts, table: TableFacts) -> Proposal:
    name, distinct, labels = facts.name, texts.distinct, [text for text, _ in texts.top]
    if facts.dates is not None:
        return _date(facts, facts.dates, table)
    if texts.exact and all(map(_OTHER_DATE.fullmatch, labels)):
        problem = "not all in one format: write them as 2013-05-06 to encode their parts"
        return Proposal(name, None, f"dates like {_shown(labels[0])}, {problem}")
    if texts.beyond is not None and distinct > _FEW:
        return Proposal(name, None, f"{texts.number} whole numbers, {_beyond(texts.beyond)}")
    counted = sum(count for _, count in texts.top)
    numeric = sum(count for text, count in texts.top if is_number(text))
    if numeric >= 0.9 * counted and distinct > _FEW:
        for text in labels:  # without one, the message describes them as codes
            if not is_number(text):
                but = f"texts like {_shown(text)}: empty such cells to scale it"
                return Proposal(name, None, f"numbers, except {but}")
    own_values = distinct > _OWN_VALUE * facts.present
    if distinct > _FEW and (own_values or distinct > _MANY):
        free = _free_text(facts, texts, table)
        if free is not None:
            return free
    if own_values and distinct > _FEW:
        what = "ids, or texts with few words or with words that do not repeat"
        return Proposal(
            name, None, f"{texts.number} different texts in {facts.present:,} rows: {what}"
        )
    return _category(facts, texts, table)


def _free_text(facts: ColumnFacts, texts: Texts, table: TableFacts) -> Proposal | None:
    found = _text_statistics(table.values.get(facts.name, ()))
    if found is None:
        return None
    default = found.max_terms == Text().max_terms
    step = _Step(
        "texts",
        {"encode": "text" if default else {"text": {"max_terms": found.max_terms}}},
        "Free text: the words and pairs of words of each row, by TF-IDF.",
    )
    measured = (
        f"{texts.number} different texts of {found.words:.0f} words on average; {found.again:.0%} "
        f"of the words are in {found.least} rows or more"
    )
    tokens = _Step(
        "tokens",
        {"encode": {"tokens": {"split": "words", "top_k": 8000, "max_length": 256}}},
        "Long texts and nothing else: the sequence of the words, for a transformer.",
    )
    is_long = found.words > _LONG_TEXT and facts.present >= _TOKEN_ROWS
    return Proposal(facts.name, step, measured, tokens=tokens if is_long else None)


def _category(facts: ColumnFacts, texts: Texts, table: TableFacts) -> Proposal:
    name, distinct = facts.name, texts.distinct
    values = _listed(texts)
    outputs = {f"{name}={value}" for value in values} | {f"{name}_other", f"{name}_missing"}
    if distinct <= _FEW and not outputs & set(table.names):
        step = _Step(
            name,
            {"encode": {"one_hot": {"values": values}}},
            f"At most {_FEW} different values: a 0/1 column for each, one for other values and one "
            "for missing values.",
        )
        measured = f"{distinct} values, {_top(facts, texts)}"
        if distinct == 1:
            measured = f"{_shown(values[0])} or nothing; {facts.missing_share:.1%} missing"
        return Proposal(name, step, measured)
    if distinct <= _MANY:
        step = _Step(
            "categories",
            {"encode": {"vocabulary": {}}},
            f"At most {_MANY:,} different values: an id for each, by frequency.",
        )
        measured = f"{texts.number} values, {_top(facts, texts)}"
        if distinct <= _FEW:
            measured += "; names of 0/1 columns would be those of other columns"
        return Proposal(name, step, measured)
    buckets = min(1 << (distinct - 1).bit_length(), 1 << 16)
    step = _Step(
        "many_values",
        {"encode": {"hash": {"buckets": buckets}}},
        f"More than {_MANY:,} different values: ids by hash, without a vocabulary.",
    )
    return Proposal(name, step, f"{texts.number} values, {_top(facts, texts)}")


def _codes(
    facts: ColumnFacts, numbers: Numbers, texts: Texts, table: TableFacts
) -> Proposal | None:
    """Return the step of codes; None for other numbers."""
    distinct = texts.distinct
    if _zero_or_one(numbers):
        return None
    if distinct <= _FEW:
        return None if table.keeps_numbers else _category(facts, texts, table)
    if not is_code(facts):
        return None  # an amount: separate ids would lose that 31 is next to 30
    frequent = facts.present >= _ROWS_PER_CODE * distinct
    if numbers.minimum >= 0 and numbers.maximum < _CODES and frequent:
        size = int(numbers.maximum) + 1
        step = _Step(
            f"codes_below_{size}",
            {"encode": {"integer": {"size": size}}},
            f"Few small integers, each in {_ROWS_PER_CODE} rows or more on average: codes, an id "
            "for each. (If they are amounts, use scale: z_score.)",
        )
        measured = f"{distinct} values of {numbers.minimum} to {numbers.maximum}"
        return Proposal(facts.name, step, measured)
    return _category(facts, texts, table)


def _number(facts: ColumnFacts, numbers: Numbers, table: TableFacts) -> Proposal:
    if _zero_or_one(numbers):
        ones = f"1 in {1.0 - numbers.zeros / facts.present:.1%}"
        why = "Only 0 and 1: not scaled."
        return _scaled(facts, table, "flags", {"scale": "none"}, ones, "most_frequent", why)
    p10, p25, p50, p75, p90 = (numbers.at(level) for level in (10, 25, 50, 75, 90))
    p1, p99 = numbers.at(1), numbers.at(99)
    skew = _bowley(p10, p50, p90)
    middle = p75 - p25
    low, high = short_number(numbers.minimum), short_number(numbers.maximum)
    if middle == 0:
        measured = f"half of the values are {short_number(p50)}, range {low} to {high}"
        return _scaled(
            facts, table, "ranked", {"scale": "gaussian"}, measured, "median",
            "At least half of the values are identical: rank-transformed.",
        )  # fmt: skip
    spread = f"median {short_number(p50)}, 99 % below {short_number(p99)}, largest {high}"
    if abs(skew) >= _SKEWED:
        if numbers.minimum >= 0 and math.log1p(p99) <= _LOG_LARGEST:
            logs = _bowley(*(math.log1p(value) for value in (p10, p50, p90)))
            if abs(logs) < _SKEWED:
                return _scaled(
                    facts, table, "skewed", {"scale": ["log1p", "z_score"]},
                    f"skew {skew:+.2f}, of log(1 + x) {logs:+.2f}; {spread}", "median",
                    f"Skew of {_SKEWED} or more (0: symmetric), and less after log(1 + x).",
                )  # fmt: skip
        return _scaled(
            facts, table, "ranked", {"scale": "gaussian"}, f"skew {skew:+.2f}; {spread}", "median",
            f"Skew of {_SKEWED} or more that a logarithm does not correct: ranks are mapped to a "
            "normal distribution.",
        )  # fmt: skip
    beyond = max(numbers.maximum - p75, p25 - numbers.minimum) / middle
    if beyond > _OUTLYING:
        return _scaled(
            facts, table, "outliers",
            {"clip": {"quantiles": [0.001, 0.999] if facts.present >= 10_000 else [0.01, 0.99]},
             "scale": "robust"},
            f"outliers up to {beyond:.0f} interquartile ranges away; {spread}", "median",
            f"Symmetric, with values more than {_OUTLYING:g} interquartile ranges beyond the "
            "quartiles: these are clipped, and do not affect median and quartiles.",
        )  # fmt: skip
    if (p99 - p1) / middle < _FLAT:
        return _scaled(
            facts, table, "even", {"scale": "min_max"},
            f"evenly spread over {low} to {high}", "mean",
            "Evenly spread, without tails: scaled to [0, 1].",
        )  # fmt: skip
    return _scaled(
        facts, table, "numbers", {"scale": "z_score"},
        f"mean {numbers.mean:.4g}, standard deviation {numbers.std:.4g}, skew {skew:+.2f}, "
        f"{beyond:.1f} interquartile ranges beyond the quartiles at most", "mean",
        f"Skew below {_SKEWED} and no value more than {_OUTLYING:g} interquartile ranges beyond "
        "the quartiles.",
    )  # fmt: skip


def _scaled(
    facts: ColumnFacts,
    table: TableFacts,
    name: str,
    options: JsonObject,
    measured: str,
    impute: str,
    why: str,
) -> Proposal:
    """Return the step, extended for missing values."""
    if not facts.missing:
        return Proposal(facts.name, _Step(name, options, why), measured)
    measured += f"; {facts.missing_share:.1%} missing"
    options = {"impute": impute, **options}
    why += f" Missing values become the {impute.replace('most_frequent', 'most frequent value')}"
    indicator = f"{facts.name}_missing"
    if facts.missing_share < _INDICATOR_SHARE or indicator in table.names:
        step = _Step(f"{name}_imputed", options, why + ".")
        return Proposal(facts.name, step, measured)
    why += f"; {_INDICATOR_SHARE:.0%} or more are missing: a 0/1 column marks them."
    options = {"impute": impute, "missing_indicator": True, **options}
    return Proposal(facts.name, _Step(f"{name}_with_missing", options, why), measured)


def has_dates(facts: ColumnFacts) -> bool:
    """Return whether values are dates; ints since 1970 may also be ids or amounts."""
    dates, numbers = facts.dates, facts.numbers
    if dates is None or dates.unit is None or _DATE_NAME.search(facts.name):
        return dates is not None
    assert numbers is not None
    low, high = (value / EPOCHS[dates.unit] for value in (numbers.minimum, numbers.maximum))
    sure = low >= _SURE_FIRST and high <= _SURE_LAST
    # Ids with ten digits are in the same range.
    return sure and not is_id_name(facts.name) and not is_consecutive(numbers, facts.present)


def _date(facts: ColumnFacts, dates: DateFacts, table: TableFacts) -> Proposal:
    measured = f"{dates.first} to {dates.last}"
    if dates.unit is not None:
        measured = f"{dates.unit} since 1970: {measured}"
    if dates.form is not None:
        measured += f", as {_shown(dates.example)}"
    if dates.doubt is not None:
        measured += f" (or {dates.doubt}: day and month are ambiguous)"
    options: JsonObject = {} if dates.form is None else {"format": dates.form}
    if dates.unit not in (None, "seconds"):
        options["unit"] = dates.unit
    if not dates.varying:
        return Proposal(facts.name, None, f"a date whose parts do not vary; {measured}")
    parts = [part for part in dates.varying if f"{facts.name}_{part}" not in table.names]
    if not parts:
        return Proposal(facts.name, None, f"a date whose parts are columns already; {measured}")
    step = _Step(
        f"dates_{'_'.join(parts)}",
        {"encode": {"date": {"parts": parts, **options}}},
        "Dates: an id for each part"
        + (". Years after the training data are unknown values." if "year" in parts else "."),
    )
    return Proposal(facts.name, step, measured)


def _zero_or_one(numbers: Numbers) -> bool:
    return numbers.minimum == 0 and numbers.maximum == 1 and numbers.whole


def _listed(texts: Texts) -> list[str]:
    return [text for text, _ in texts.top]


def _top(facts: ColumnFacts, texts: Texts) -> str:
    value, count = texts.top[0]
    missing = f"; {facts.missing_share:.1%} missing" if facts.missing else ""
    why = f"; {_beyond(texts.beyond)}" if texts.beyond is not None else ""
    about = "" if texts.exact else "about "
    share = count / facts.present
    percent = f"{share:.0%}" if share >= 0.01 else f"{100 * share:.1g}%"
    return f"most often {_shown(value)} ({about}{percent}){missing}{why}"


def _beyond(value: str) -> str:
    """Return why integers are text."""
    return (
        f"text because {value} is beyond int64 (-2^63 to 2^63 - 1): to scale the column, remove "
        "it or write all values with a decimal point"
    )


def _shown(text: str) -> str:
    short = text if len(text) <= 30 else text[:29] + "…"
    return repr(short)
