"""Errors of a regression on a sample of rows: residuals, predicted against actual, by decile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.page import charts
from pipeline.page.elements import (
    Beside,
    Block,
    Cell,
    Chart,
    Column,
    Row,
    Table,
    Text,
    number_cell,
)
from pipeline.page.finite import rounded
from pipeline.page.sampled_rows import SampledRows

BINS = 40
_EDGE = 0.005
"""Share of the rows at each end that charts leave out, so that outliers do not hide the others."""


def blocks_of(sample: SampledRows, *, counted: str) -> list[Block]:
    """Return the charts and the table of a sample.

    Args:
        sample: The rows.
        counted: Unit of the counts: rows or weights.
    """
    labels, predictions = sample.labels, sample.predictions[:, 0]
    known = np.isfinite(labels) & np.isfinite(predictions)
    if not known.any():
        return [Text("There are no residuals: no label and prediction are both numbers.", "bad")]
    labels, predictions, weights = (each[known] for each in (labels, predictions, sample.weights))
    text = f"On {sample.of_how_many}; a residual is the prediction minus the label."
    if not known.all():
        missing = f"{(~known).sum():,}"
        text += f" {missing} rows are left out: a label or a prediction is not a number."
    return [
        Text(text),
        Beside(
            [
                _histogram(predictions - labels, weights, counted),
                _against_actual(labels, predictions, weights, counted),
            ]
        ),
        _by_decile(labels, predictions, weights),
    ]


def _histogram(residuals: np.ndarray, weights: np.ndarray, counted: str) -> Chart:
    low, high = _range(residuals)
    counts, edges = np.histogram(residuals, BINS, (low, high), weights=weights)
    data = {
        "low": _rounded(edges[:-1]),
        "high": _rounded(edges[1:]),
        "y": _rounded(counts),
    }
    outside = int(((residuals < low) | (residuals > high)).sum())
    mean = float(np.average(residuals, weights=weights)) if weights.sum() > 0 else float("nan")
    text = f"The mean residual is {mean:.4g}; {outside:,} rows lie outside of the chart"
    return Chart("Residuals", charts.histogram("residual", counted), data, text)


def _against_actual(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray, counted: str
) -> Chart:
    ranges = [_range(labels), _range(predictions)]
    counts, x, y = np.histogram2d(labels, predictions, BINS, ranges, weights=weights)
    i, j = np.nonzero(counts)
    data = {
        "x0": _rounded(x[i]),
        "x1": _rounded(x[i + 1]),
        "y0": _rounded(y[j]),
        "y1": _rounded(y[j + 1]),
        "n": _rounded(counts[i, j]),
    }
    spec = charts.heat_map("actual", "predicted", counted, bins=True)
    inside = counts.sum() / max(weights.sum(), 1e-300)
    text = f"{inside:.1%} of the {counted} lie in the chart; exact predictions are on the diagonal"
    return Chart("Predicted against actual", spec, data, text)


def _by_decile(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> Table:
    rows = []
    parts = np.array_split(np.argsort(predictions, kind="stable"), min(10, len(labels)))
    for number, part in enumerate(parts, 1):
        residuals, w = predictions[part] - labels[part], weights[part]
        means = (
            [float(np.average(each, weights=w)) for each in (np.abs(residuals), residuals)]
            if w.sum() > 0
            else [None, None]
        )
        first, last = predictions[part[0]], predictions[part[-1]]
        rows.append(
            Row(
                [
                    Cell(str(number), value=number),
                    number_cell(float(first)),
                    number_cell(float(last)),
                    number_cell(len(part), f"{len(part):,}"),
                    *(number_cell(mean) for mean in means),
                ]
            )
        )
    names = ("decile", "from", "to", "rows", "mean absolute error", "mean residual")
    return Table("Error by decile of the prediction", [Column(name, True) for name in names], rows)


def _range(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [_EDGE, 1 - _EDGE])
    return (float(low), float(high)) if high > low else (float(low) - 0.5, float(low) + 0.5)


def _rounded(values: np.ndarray) -> Sequence[float]:
    return [rounded(each) for each in values]
