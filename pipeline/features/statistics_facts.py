"""Why columns are no features, by the rules of `features suggest` and the statistics of a run.

StatisticsGen (TFDV) keeps the values of a column with up to 1,000 distinct texts, and of one with
more the most frequent 1,000. It does not count distinct numbers and keeps only their deciles, so
rules that need more of a column of numbers do not apply here.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.features.column_counter import FLOAT_MERGES, ColumnCounter
from pipeline.features.column_facts import ColumnFacts, Numbers, Texts
from pipeline.features.dates import counted_dates
from pipeline.features.feature_rules import MOSTLY_MISSING, TableFacts, is_constant, propose
from pipeline.features.id_rules import is_id_name
from pipeline.report.split_statistics import common_statistics, missing_rows

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0.statistics_pb2 import FeatureNameStatistics

_MOST_ROWS = 5_000  # of texts that are looked at for words


def left_out_reason(facts: ColumnFacts) -> str | None:
    """Return why `features suggest` leaves a column out; None if it does not, or is not known to.

    Args:
        facts: Statistics of the column, from `facts_of`.
    """
    is_settled = facts.missing_share > MOSTLY_MISSING or is_constant(facts)
    is_settled |= facts.several and facts.type == "float"
    if facts.texts is None and not is_settled:
        return None
    top = facts.texts.top if facts.texts is not None else ()
    rows = ([text] for text, count in top for _ in range(count))
    values = {facts.name: list(itertools.islice(rows, _MOST_ROWS))}
    proposal = propose(facts, TableFacts(values=values))
    return proposal.measured if proposal.step is None else None


def describe(facts: ColumnFacts) -> str:
    """Return what the values of a column are, as a phrase."""
    if not facts.present:
        return "no row has a value"
    found = "values"
    if facts.texts is not None and facts.type == "string":
        found = f"{facts.texts.number} different texts"
    elif facts.numbers is not None:
        low, high = facts.numbers.minimum, facts.numbers.maximum
        found = f"numbers from {low:.6g} to {high:.6g}"
        if facts.type == "int":
            ids = ", ids by their name" if is_id_name(facts.name) else ""
            found = f"whole numbers from {low:.0f} to {high:.0f}{ids}"
    return found + (f"; {facts.missing:,} of {facts.rows:,} missing" if facts.missing else "")


def facts_of(name: str, column: FeatureNameStatistics, rows: int) -> ColumnFacts:
    """Return the statistics of a column of a split.

    Args:
        name: Name of the column.
        column: Its statistics.
        rows: Number of rows of the split.

    Returns:
        The statistics. `numbers` has no distinct values and no percentiles.
    """
    common, missing = common_statistics(column), missing_rows(column, rows)
    if common is None or missing == rows:
        return ColumnFacts(name, "unknown", rows, missing=rows)
    several = common.max_num_values > 1
    if column.HasField("string_stats"):
        return _of_texts(name, column, rows, missing, several)
    if not column.HasField("num_stats"):  # structures
        return ColumnFacts(name, "unknown", rows, missing, several)
    found = column.num_stats
    is_int = column.type == column.INT
    if is_int and max(-found.min, found.max) >= FLOAT_MERGES:  # TFDV rounds them to doubles
        return ColumnFacts(name, "int", rows, missing, several)
    numbers = Numbers(found.min, found.max, found.mean, found.std_dev, found.num_zeros, ())
    texts = None
    if is_int and found.min == found.max:
        value = str(int(found.min))
        texts = Texts(1, ((value, rows - missing),), float(len(value)))
    return ColumnFacts(name, "int" if is_int else "float", rows, missing, several, numbers, texts)


def _of_texts(
    name: str, column: FeatureNameStatistics, rows: int, missing: int, several: bool
) -> ColumnFacts:
    stats = column.string_stats
    counts = {each.label: round(each.sample_count) for each in stats.rank_histogram.buckets}
    distinct = stats.unique
    has_all = len(counts) >= distinct
    if empty := counts.pop("", 0):  # a missing value, as in Transform
        missing, distinct = missing + (0 if several else empty), distinct - 1
    if not counts:
        return ColumnFacts(name, "unknown", rows, missing=rows)
    counter = ColumnCounter("string", len(counts))
    counter.add(pa.array(sorted(counts), pa.string()))
    length = stats.avg_length  # in bytes
    if has_all:
        length = sum(len(text) * n for text, n in counts.items()) / sum(counts.values())
    top = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    texts = Texts(distinct, tuple(top), length, counter.beyond)
    dates = counted_dates(counter.dates)
    return ColumnFacts(name, "string", rows, missing, several, texts=texts, dates=dates)
