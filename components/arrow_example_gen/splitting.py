"""Which split a row comes into.

    content     a hash of the row: equal rows come into one split
    group       a hash of a column's values: equal ones come into one split
    row         a hash of the row and of its place in the file: equal rows are split like others.
                Up to 10,000 rows are sorted by it, so that the shares are exact
    stratified  the same, class by class: each split has its share of each class, exact up to
                131,072 rows of a class
    time        the earliest rows are the first split's, the latest the last one's (`instants`)

All are functions of the rows and their places in their files, whatever the order, the blocks and
the workers in which they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
import pydantic
from apache_beam.pvalue import AsSingleton, TaggedOutput
from pydantic import BaseModel, ConfigDict

from components.arrow_example_gen.columns import Rows, are_usable
from components.arrow_example_gen.row_hash import row_hashes, with_places

_TIME = (
    r"^(?P<year>\d{4})(?:-(?P<month>\d{2})(?:-(?P<day>\d{2})(?:[Tt ](?P<hour>\d{2})"
    r"(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d+))?)?)?"
    r" ?(?P<offset>[Zz]|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?)?)?$"
)
_DEFAULTS = {"month": "01", "day": "01", "hour": "00", "minute": "00", "second": "00"}
_YEAR_0 = 2**40  # seconds that make each sum a positive number of 13 digits
_FIX = "Write times as 2024-05-31 12:00:00 (or a part of it, from the left), or as numbers."


class _Instants(NamedTuple):
    keys: pa.Array  # [rows], of a type that Arrow sorts
    forms: dict[bool, str]  # whether a text has an offset -> the first such text; {} for numbers


def instants(values: pa.Array) -> _Instants:
    """Return keys that sort times by the instant, whatever the offsets and fractions of the texts.

    Numbers are their own keys. A text is ISO 8601, or a part of it from the left: 2024,
    2024-05-31T12:00:00.5+02:00. Its key is the second in UTC, as 13 digits, and the fraction
    without zeros at its end, of any length.

    Args:
        values: Numbers or binary texts, without null.

    Raises:
        ValueError: A text is no time. The message continues "Column 'x' of ...".
    """
    if not types.is_binary(values.type) and not types.is_large_binary(values.type):
        return _Instants(values, {})
    found = pc.extract_regex(values, pattern=_TIME)
    _refuse(values, found.is_null())
    parts = {field.name: found.field(i).cast(pa.string()) for i, field in enumerate(found.type)}
    for name, default in _DEFAULTS.items():
        parts[name] = pc.if_else(pc.equal(parts[name], ""), default, parts[name])
    day = pc.binary_join_element_wise(parts["year"], parts["month"], parts["day"], "-")
    clock = pc.binary_join_element_wise(parts["hour"], parts["minute"], parts["second"], ":")
    local = pc.binary_join_element_wise(day, clock, "T").to_numpy(zero_copy_only=False)
    seconds = _seconds(local)
    _refuse(values, pa.array(np.isnat(seconds)))
    offsets = parts["offset"].dictionary_encode()
    shifts = np.array([_shift(each) for each in offsets.dictionary.to_pylist()], np.int64)
    utc = seconds.astype(np.int64) - shifts[offsets.indices.to_numpy()]
    keys = pc.binary_join_element_wise(
        pa.array(utc + _YEAR_0).cast(pa.string()), pc.utf8_rtrim(parts["fraction"], "0"), "."
    )
    has_offset = pc.not_equal(parts["offset"], "")
    places = {form: pc.index(has_offset, pa.scalar(form)).as_py() for form in (True, False)}
    return _Instants(
        keys, {form: values[i].as_py().decode() for form, i in places.items() if i >= 0}
    )


def check_forms(forms: dict[bool, str]) -> None:
    """Check that all texts of a column have an offset, or none.

    Raises:
        ValueError: Some have; the message continues "Column 'x' of ...".
    """
    if len(forms) > 1:
        raise ValueError(
            f"holds {forms[True]!r}, with an offset from UTC, and {forms[False]!r}, without one: "
            "which is earlier is unknown. Write all of them with an offset (+02:00, or Z for UTC), "
            "or none."
        )


def _seconds(texts: np.ndarray) -> np.ndarray:
    """Return datetime64[s] `[rows]`, NaT for a day or a time that does not exist."""
    try:
        return texts.astype("datetime64[s]")
    except ValueError:
        return np.array([_second(text) for text in texts.tolist()], "datetime64[s]")


def _second(text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "s")
    except ValueError:
        return np.datetime64("NaT", "s")


def _shift(offset: str) -> int:
    """Return the seconds of `+02:00`, `+0200` or `+02`; 0 for `Z` and without an offset."""
    if offset[:1] not in ("+", "-"):
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    return int(offset[0] + "1") * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def _refuse(values: pa.Array, wrong: pa.Array) -> None:
    texts = values.filter(wrong)
    if len(texts):
        first = texts[0].as_py().decode(errors="replace")
        raise ValueError(f"holds {first!r}, which is no time ({len(texts):,} such texts). {_FIX}")


EXACT = 10_000
"""Rows up to which the shares of `row` are exact."""

_EXACT_OF_CLASS = 2**17
"""The same of a class; with more rows, a hash is off by about 0.1 % of the rows, or less."""

_SAMPLED = 2**18
"""Rows up to which the cuts of a time are exact; of more, it is those of a sample of so many."""

_HASH_BITS = 53

Value: TypeAlias = str | int | float


class Splitting(BaseModel):
    """How rows are split.

    Attributes:
        by: see above.
        column: of `group`, the label of `stratified`, the time of `time`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: Literal["content", "group", "row", "stratified", "time"]
    column: str | None = None

    @pydantic.model_validator(mode="after")
    def _has_its_column(self) -> Splitting:
        if (self.column is None) != (self.by in ("content", "row")):
            raise ValueError(f"by={self.by!r} and column={self.column!r} do not go together")
        return self


class SplitRows(beam.PTransform):
    """Files -> a tuple of record batches, an item per split."""

    def __init__(self, read: beam.PTransform, splitting: Splitting, shares: Sequence[int]):
        """Split rows by shares of their sum.

        `read` reads the files as `Rows`. It runs twice where the cuts between the splits depend on
        all rows, so that these are not held between the passes.
        """
        super().__init__()
        self._read, self._splitting, self._shares = read, splitting, list(shares)

    def expand(self, pipeline: beam.Pipeline) -> Any:
        """Read the rows, and split each batch."""
        splitting, shares, side = self._splitting, self._shares, []
        if splitting.by in ("row", "stratified", "time"):
            rows: Any = pipeline | "RowsForCuts" >> self._read
            combine = _combine(splitting, shares)
            side = [AsSingleton(rows | "Cuts" >> beam.CombineGlobally(combine))]
        rows = pipeline | "Rows" >> self._read
        tags = [str(i) for i in range(len(shares))]
        split = rows | "Split" >> beam.FlatMap(_split, splitting, shares, *side).with_outputs(*tags)
        return tuple(split[tag] for tag in tags)


def _split(
    rows: Rows, splitting: Splitting, shares: Sequence[int], cuts: Any = None
) -> Iterator[TaggedOutput]:
    numbers = splits_of(rows, splitting, shares, cuts)
    for number in range(len(shares)):
        # Splits without a row too: their files have the columns.
        yield TaggedOutput(str(number), rows[1].filter(pa.array(numbers == number)))


def splits_of(
    rows: Rows, splitting: Splitting, shares: Sequence[int], cuts: Any = None
) -> np.ndarray:
    """Return the number of each row's split, int `[rows]`.

    Args:
        rows: as they are read.
        splitting: by what.
        shares: of each split, of their sum.
        cuts: the result of `find_cuts` over all rows.

    Raises:
        ValueError: a row has no value of the column, or one that `group` or `time` does not take.
    """
    batch = rows[1]
    if splitting.by == "time":
        assert splitting.column is not None
        values = _instants(batch, splitting.column).keys
        found = np.zeros(len(values), np.int64)
        for cut in cuts or []:
            after = pc.greater(values, pa.scalar(cut, values.type))
            found += after.to_numpy(zero_copy_only=False)
        return found
    ranks = _ranks_of(rows, splitting)
    if splitting.by in ("content", "group"):
        return np.searchsorted(hash_cuts(shares), ranks, side="left")
    classes, names = _classes(batch, splitting)
    of_class = np.array([cuts[name] for name in names], np.int64).reshape(len(names), -1)
    return (ranks[:, None] > of_class[classes]).sum(1)


def find_cuts(rows: Iterable[Rows], splitting: Splitting, shares: Sequence[int]) -> Any:
    """Return what `splits_of` needs to know of all rows; None where that is nothing."""
    if splitting.by in ("content", "group"):
        return None
    combine = _combine(splitting, shares)
    found = combine.create_accumulator()
    for each in rows:
        found = combine.add_input(found, each)
    return combine.extract_output(found)


def _combine(splitting: Splitting, shares: Sequence[int]) -> Any:
    return (_TimeCuts if splitting.by == "time" else _ClassCuts)(splitting, shares)


def _ranks_of(rows: Rows, splitting: Splitting) -> np.ndarray:
    """Return the hash that decides a row's split, int64 below 2^53 `[rows]`; not for `time`."""
    places, batch = rows
    if splitting.by == "group":
        assert splitting.column is not None
        if types.is_floating(_first_values(batch, splitting.column).type):
            raise ValueError(
                f"Column {splitting.column!r} has floats, by which rows are not grouped: use a "
                "column of whole numbers or texts."
            )
        hashes = row_hashes(batch, [splitting.column])
    else:
        hashes = row_hashes(batch)
    if splitting.by not in ("content", "group"):
        hashes = with_places(hashes, places)
    return (hashes >> np.uint64(64 - _HASH_BITS)).astype(np.int64)


def hash_cuts(shares: Sequence[int]) -> list[int]:
    """Return the last hash of each split but the last one, for hashes that are spread evenly."""
    limits = list(accumulate(shares))
    return [-(-(limit << _HASH_BITS) // limits[-1]) - 1 for limit in limits[:-1]]


def cuts_of(values: Any, shares: Sequence[int]) -> list[Any]:
    """Return the last value of each split but the last one.

    Args:
        values: sorted: a sequence or an array.
        shares: of each split, of their sum.
    """
    limits = list(accumulate(shares))
    places = [round(limit / limits[-1] * len(values)) - 1 for limit in limits[:-1]]
    return [values[max(place, 0)] for place in places]


def _first_values(batch: pa.RecordBatch, column: str) -> pa.Array:
    """Return the first value of each row's list."""
    place = batch.schema.get_field_index(column)
    lists = batch[place] if place >= 0 else pa.nulls(batch.num_rows, pa.large_list(pa.int64()))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    if (lengths > 0).all():
        values = lists.values.take(lists.offsets[:-1])
        if types.is_floating(values.type):
            usable = not np.isnan(values.to_numpy()).any()
        else:
            usable = bool(are_usable(values).all())
        if usable:
            return values
    raise ValueError(
        f"A row has no value of column {column!r}, by which rows are split. Give it one, or "
        "split by another column."
    )


def _instants(batch: pa.RecordBatch, column: str) -> _Instants:
    values = _first_values(batch, column)
    try:
        return instants(values)
    except ValueError as error:
        raise ValueError(f"Column {column!r} {error}") from None


def _classes(batch: pa.RecordBatch, splitting: Splitting) -> tuple[np.ndarray, list[Any]]:
    """Return the number of each row's class, int `[rows]`, and the classes."""
    if splitting.column is None:
        return np.zeros(batch.num_rows, np.int64), [None]
    encoded = _first_values(batch, splitting.column).dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


_Hashes = dict[Any, np.ndarray | None]


class _ClassCuts(beam.CombineFn):
    """Computes the cuts of each class: `cuts_of` its hashes, or `hash_cuts` of many."""

    def __init__(self, splitting: Splitting, shares: Sequence[int]):
        self._splitting, self._shares = splitting, list(shares)

    def create_accumulator(self) -> _Hashes:
        return {}

    def add_input(self, accumulator: _Hashes, rows: Rows) -> _Hashes:
        ranks = _ranks_of(rows, self._splitting)
        classes, names = _classes(rows[1], self._splitting)
        by_class = np.argsort(classes, kind="stable")
        ends = np.cumsum(np.bincount(classes, minlength=len(names)))
        for name, found in zip(names, np.split(ranks[by_class], ends[:-1]), strict=True):
            self._add(accumulator, name, found)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Hashes]) -> _Hashes:
        merged: _Hashes = {}
        for accumulator in accumulators:
            for name, found in accumulator.items():
                self._add(merged, name, found)
        return merged

    def extract_output(self, accumulator: _Hashes) -> dict[Any, list[int]]:
        return {
            name: hash_cuts(self._shares)
            if hashes is None
            else cuts_of(np.sort(hashes).tolist(), self._shares)
            for name, hashes in accumulator.items()
        }

    def _add(self, to: _Hashes, name: Any, found: np.ndarray | None) -> None:
        most = EXACT if self._splitting.by == "row" else _EXACT_OF_CLASS
        known = to.get(name, np.empty(0, np.int64))
        if known is None or found is None or len(known) + len(found) > most:
            to[name] = None
        else:
            to[name] = np.concatenate([known, found])


_Sample = tuple[np.ndarray, _Instants | None]


class _TimeCuts(beam.CombineFn):
    """Computes `cuts_of` all values, or of those of `_SAMPLED` rows with the smallest hashes."""

    def __init__(self, splitting: Splitting, shares: Sequence[int]):
        self._splitting, self._shares = splitting, list(shares)

    def create_accumulator(self) -> _Sample:
        return np.empty(0, np.int64), None

    def add_input(self, accumulator: _Sample, rows: Rows) -> _Sample:
        assert self._splitting.column is not None
        found = _instants(rows[1], self._splitting.column)
        return self.merge_accumulators([accumulator, (_ranks_of(rows, self._splitting), found)])

    def merge_accumulators(self, accumulators: Iterable[_Sample]) -> _Sample:
        found = [(ranks, each) for ranks, each in accumulators if each is not None]
        if not found:
            return self.create_accumulator()
        ranks = np.concatenate([ranks for ranks, _ in found])
        keys = pa.concat_arrays([each.keys for _, each in found])
        forms = {form: text for _, each in found for form, text in each.forms.items()}
        if len(ranks) > _SAMPLED:
            smallest = np.argpartition(ranks, _SAMPLED)[:_SAMPLED]
            ranks, keys = ranks[smallest], keys.take(pa.array(smallest))
        return ranks, _Instants(keys, forms)

    def extract_output(self, accumulator: _Sample) -> list[Value]:
        _, found = accumulator
        if found is None:
            return []
        try:
            check_forms(found.forms)
        except ValueError as error:
            raise ValueError(f"Column {self._splitting.column!r} {error}") from None
        ordered = found.keys.take(pc.sort_indices(found.keys))
        return [cut.as_py() for cut in cuts_of(ordered, self._shares)]
