"""What the analysis found of each column, read from a transform graph for whoever explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from transform.analyzers.fitted import fitted_numbers
from transform.analyzers.order import ORDER, OrderStatistics
from transform.analyzers.per_key import MOMENTS_OF_KEYS
from transform.analyzers.present import PRESENT
from transform.analyzers.statistics import STATISTICS, FittedStatistics, Moments

_RECORDS = {
    STATISTICS: FittedStatistics,
    ORDER: OrderStatistics,
    MOMENTS_OF_KEYS: Moments,
}


@dataclass(frozen=True)
class FittedColumn:
    """Numbers of one column; None, or not there, where its steps asked for none.

    Attributes:
        statistics: Of a scaled column.
        order: Of a scaled column, where any column wants quantiles.
        moments_of_keys: Float64 `[keys + 1]` each; the last are those of all rows.
        values: Everything else, by the word that it was kept under: `filling`, `most_frequent`,
            `boundaries`, `quantiles`, ...; of a record (`power`), a number for each of its fields.
    """

    statistics: FittedStatistics | None = None
    order: OrderStatistics | None = None
    moments_of_keys: Moments | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int | None:
        """Rows with a value; None where a version wrote the graph that did not count them."""
        if PRESENT in self.values:
            return int(self.values[PRESENT])
        return None if self.statistics is None else int(self.statistics.count)


def fitted_columns(uri: str) -> dict[str, FittedColumn]:
    """Return column -> what was found of it.

    Args:
        uri: of the `transform_graph` artifact, or `TFTransformOutput`'s folder.
    """
    records: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[str, Any]] = {}
    for kept in fitted_numbers(uri):
        for column, found in kept.by_column().items():
            if kept.what in _RECORDS:
                record = kept.record(cast("Any", _RECORDS[kept.what]), found)
                records.setdefault(column, {})[kept.what] = record
            else:
                value = dict(zip(kept.fields, found, strict=True)) if kept.fields else found
                values.setdefault(column, {})[kept.what] = value
    return {
        column: FittedColumn(values=values.get(column, {}), **records.get(column, {}))
        for column in {**records, **values}
    }
