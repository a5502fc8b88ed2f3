"""Calibration: for the rows with a predicted probability, how often the prediction came true."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from pipeline.common.json_types import JsonValue
from pipeline.config.evaluation import CALIBRATION_BINS
from trainer_module.common.progress import metric_text


class Bin(NamedTuple):
    """The rows whose probability is in one range.

    Attributes:
        low: Lower end of the range.
        high: Upper end of the range.
        rows: Total weight of the rows.
        predicted: Mean probability of the rows.
        observed: Share of the rows in which the predicted event occurred.
    """

    low: float
    high: float
    rows: float
    predicted: float
    observed: float


def bins_of(metrics: Mapping[str, JsonValue]) -> list[Bin]:
    """Return the nonempty bins in TFMA's metrics of a slice (as JSON)."""
    values = metrics.get(CALIBRATION_BINS, {}).get("arrayValue", {}).get("float64Values", [])
    numbers = [float(value) for value in values]
    count = len(numbers) // 3
    weights, predicted, observed = (numbers[i * count : (i + 1) * count] for i in range(3))
    return [
        Bin(i / count, (i + 1) / count, weights[i], predicted[i] / weights[i], came / weights[i])
        for i, came in enumerate(observed)
        if weights[i]
    ]


def table_of(bins: Sequence[Bin], *, counted: str) -> Table:
    """Return a table with a column for each bin: mean probability, observed share, number of rows.

    Args:
        bins: At least one bin.
        counted: Unit of the counts: rows or weights.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("predicted")
    for each in bins:
        table.add_column(_short(each.predicted), justify="right")
    table.add_row("observed", *(_short(each.observed) for each in bins))
    table.add_row(counted, *(f"{each.rows:,.10g}" for each in bins))
    return table


def sentence(bins: Sequence[Bin]) -> str:
    """Return a sentence with the calibration and the expected calibration error."""
    rows = sum(each.rows for each in bins)
    predicted = sum(each.rows * each.predicted for each in bins)
    observed = sum(each.rows * each.observed for each in bins)
    error = sum(each.rows * abs(each.predicted - each.observed) for each in bins) / rows
    ratio = metric_text(predicted / observed) if observed else "undefined"
    return (
        f"calibration (mean predicted / observed) {ratio}, expected calibration error "
        f"{metric_text(error)}"
    )


def _short(probability: float) -> str:
    return "-" if math.isnan(probability) else f"{probability:.3f}"
