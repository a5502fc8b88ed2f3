"""Which split a row comes into, where a hash of its content is not what is wanted.

    row         a hash of the row and of its place in the file: equal rows are split like others.
                Up to 10,000 rows are sorted by it, so that the shares are exact
    stratified  the same, class by class: each split has its share of each class
    time        the earliest rows are the first split's, the latest the last one's

TFX's own two, by a hash of the content and by that of a column, are left to TFX.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeVar

import apache_beam as beam
import pydantic
import tensorflow as tf
from apache_beam.pvalue import AsDict
from apache_beam.transforms.stats import ApproximateQuantilesCombineFn
from pydantic import BaseModel, ConfigDict

EXACT = 10_000  # rows of a key up to which its shares are exact
_QUANTILES = 1001
_HASHES = 2**53

Value = bytes | int | float
Ranked = TypeVar("Ranked", int, Value)
_Values = tuple[list[Value], Any]
NumberedRow = tuple[int, tf.train.Example]


class Splitting(BaseModel):
    """How rows are split.

    Attributes:
        by: see above.
        column: the label of `stratified`, the time of `time`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: Literal["row", "stratified", "time"]
    column: str | None = None

    @pydantic.model_validator(mode="after")
    def _has_its_column(self) -> Splitting:
        if (self.column is None) != (self.by == "row"):
            raise ValueError(f"by={self.by!r} and column={self.column!r} do not go together")
        return self


class SplitRows(beam.PTransform):
    """Numbered rows -> a tuple of tf.Examples, an item per split."""

    def __init__(self, splitting: Splitting, shares: Sequence[int]):
        """Split rows.

        Args:
            splitting: by what.
            shares: of each split, of their sum.
        """
        super().__init__()
        self._splitting, self._shares = splitting, list(shares)

    def expand(self, rows: Any) -> Any:
        """Split them in two passes: the first one finds the cuts between the splits."""
        by_rank: Any = _by_rank
        cuts_of_key = _HashCuts if self._splitting.by == "row" else _Cuts
        cuts = (
            rows
            | "Ranks" >> beam.Map(_rank, self._splitting)
            | "Cuts" >> beam.CombinePerKey(cuts_of_key(self._shares))
        )
        split = rows | "Split" >> beam.Partition(
            by_rank, len(self._shares), self._splitting, AsDict(cuts)
        )
        return tuple(
            each | f"Rows[{i}]" >> beam.Map(_row).with_output_types(tf.train.Example)
            for i, each in enumerate(split)
        )


def hash_of(number: int, serialized: bytes) -> int:
    """Return an even integer hash below 2^53 of a row and its place.

    Args:
        number: the row's place in its file.
        serialized: the row, serialized deterministically.
    """
    digest = hashlib.sha256(b"%d " % number + serialized).digest()
    return int.from_bytes(digest[:8], "big") % _HASHES


def hash_cuts(shares: Sequence[int]) -> list[int]:
    """Return the last hash of each split but the last one, for hashes that are spread evenly."""
    limits = list(accumulate(shares))
    return [-(-limit * _HASHES // limits[-1]) - 1 for limit in limits[:-1]]


def cuts_of(values: Sequence[Ranked], shares: Sequence[int]) -> list[Ranked]:
    """Return the last value of each split but the last one.

    Args:
        values: sorted: all of them, or their quantiles.
        shares: of each split, of their sum.
    """
    limits = list(accumulate(shares))
    places = [round(limit / limits[-1] * len(values)) - 1 for limit in limits[:-1]]
    return [values[max(place, 0)] for place in places]


def value_of(example: tf.train.Example, column: str) -> Value:
    """Return the first value of a column.

    Raises:
        ValueError: the row has none.
    """
    feature = example.features.feature
    kind = feature[column].WhichOneof("kind") if column in feature else None
    values: Sequence[Value] = getattr(feature[column], kind).value if kind else []
    if not len(values) or values[0] != values[0] or values[0] == b"":
        raise ValueError(
            f"A row has no value of column {column!r}, by which rows are split. Give it one, or "
            "split by another column."
        )
    return values[0]


class _HashCuts(beam.CombineFn):
    """Computes `cuts_of` all hashes, or `hash_cuts` if there are more than `EXACT`."""

    def __init__(self, shares: Sequence[int]):
        self._shares = list(shares)

    def create_accumulator(self) -> list[int] | None:
        return []

    def add_input(self, accumulator: list[int] | None, value: int) -> list[int] | None:
        if accumulator is None or len(accumulator) == EXACT:
            return None
        accumulator.append(value)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[int] | None]) -> list[int] | None:
        found: list[int] = []
        for hashes in accumulators:
            if hashes is None or len(found) + len(hashes) > EXACT:
                return None
            found += hashes
        return found

    def extract_output(self, accumulator: list[int] | None) -> list[int]:
        if accumulator is None:
            return hash_cuts(self._shares)
        return cuts_of(sorted(accumulator), self._shares)


class _Cuts(beam.CombineFn):
    """`cuts_of` all values of a key; of many, of their quantiles, within 0.1 % of the rows."""

    def __init__(self, shares: Sequence[int]):
        self._shares = list(shares)
        self._quantiles = ApproximateQuantilesCombineFn.create(_QUANTILES)

    def create_accumulator(self) -> _Values:
        return [], None

    def add_input(self, accumulator: _Values, value: Value) -> _Values:
        few, many = accumulator
        if many is not None:
            return few, self._quantiles.add_input(many, value)
        few.append(value)
        return accumulator if len(few) <= EXACT else ([], self._all(few))

    def merge_accumulators(self, accumulators: Iterable[_Values]) -> _Values:
        found = list(accumulators)
        if all(many is None for _, many in found):
            few = [value for values, _ in found for value in values]
            return (few, None) if len(few) <= EXACT else ([], self._all(few))
        many = [self._all(values) if more is None else more for values, more in found]
        return [], self._quantiles.merge_accumulators(many)

    def extract_output(self, accumulator: _Values) -> list[Value]:
        few, many = accumulator
        values = sorted(few) if many is None else self._quantiles.extract_output(many)
        return cuts_of(values, self._shares)

    def _all(self, values: Iterable[Value]) -> Any:
        many = self._quantiles.create_accumulator()
        for value in values:
            many = self._quantiles.add_input(many, value)
        return many


def _row(row: NumberedRow) -> tf.train.Example:
    return row[1]


def _hash(row: NumberedRow) -> int:
    return hash_of(row[0], row[1].SerializeToString(deterministic=True))


def _rank(row: NumberedRow, splitting: Splitting) -> tuple[Value, Value]:
    """Return the rows that are split with this one, and its place among them."""
    if splitting.column is None:
        return b"", _hash(row)
    value = value_of(row[1], splitting.column)
    return (value, _hash(row)) if splitting.by == "stratified" else (b"", value)


def _by_rank(
    row: NumberedRow, _: int, splitting: Splitting, cuts: Mapping[Value, Sequence[Value]]
) -> int:
    key, rank = _rank(row, splitting)
    return bisect.bisect_left(cuts[key], rank)
