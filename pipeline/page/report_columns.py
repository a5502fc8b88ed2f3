"""The columns of a validator's report as a page lists them: by raw column, 0 and 1 folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from components.normalization_validator.report import ColumnStatistics, Report

Output = tuple[ColumnStatistics, ...]
"""A transformed column in each split, train first."""


class Line(NamedTuple):
    """A row of a table of columns.

    Attributes:
        source: The raw or derived column.
        output: What the row is about; None: the folded outputs alone.
        folded: Outputs of 0 and 1 of the source, in its first row.
    """

    source: str
    output: Output | None
    folded: Sequence[Output]


def sources_of(report: Report) -> list[str]:
    """Return the raw or derived column of each transformed column."""
    train = report.split(report.limits.train_split)
    return [report.sources.get(column.name, column.name) for column in train.columns]


def lines_of(report: Report) -> Iterator[Line]:
    """Yield the rows of a table, the outputs of a raw column one after the other.

    A source that became several outputs has a row for each; those of 0 and 1 alone (indicators,
    one_hot) are folded into the first one, or into a row of their source.
    """
    sources = sources_of(report)
    outputs = list(zip(*(split.columns for split in report.splits), strict=True))
    first: dict[str, int] = {}
    for place, source in enumerate(sources):
        first.setdefault(source, place)
    order = sorted(range(len(sources)), key=lambda place: first[sources[place]])
    for source, places in groupby(order, key=lambda place: sources[place]):
        found = [outputs[place] for place in places]
        folded, shown = [], []
        for output in found:
            is_folded = len(found) > 1 and all(map(holds_zero_one, output))
            (folded if is_folded else shown).append(output)
        for number, output in enumerate(shown or [None]):
            yield Line(source, output, [] if number else folded)


def holds_zero_one(column: ColumnStatistics) -> bool:
    """Whether every value is 0 or 1."""
    if column.is_id or column.non_finite or {column.min, column.max} - {0.0, 1.0, None}:
        return False
    histogram = column.histogram
    if histogram is None:
        return column.count == 0
    counts = [a + b for a, b in zip(histogram.observed, histogram.imputed, strict=True)]
    at = {int(value // histogram.width) - histogram.first_bin for value in (0.0, 1.0)}
    return sum(counts[place] for place in at if 0 <= place < len(counts)) == sum(counts)
