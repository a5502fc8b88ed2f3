"""The Evaluator's metrics of each slice, as TFMA wrote them."""

from __future__ import annotations

import math

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.report import classes

LARGEST_CLASS = "largest_class"  # share of the rows


def slices_of(uri: str) -> list[tuple[tuple[tuple[str, JsonValue], ...], JsonObject]]:
    """Return TFMA's metrics of each slice ((column, value), ...) as JSON; all rows come first."""
    import tensorflow_model_analysis as tfma

    results = tfma.load_eval_result(uri).slicing_metrics
    return [
        (slice_key, metrics[""][""])
        for slice_key, metrics in sorted(results, key=lambda item: (len(item[0]), str(item[0])))
    ]


def named_slices(uri: str) -> list[tuple[str, JsonObject]]:
    """Return `slices_of` with each slice as text; the slice of all rows is ""."""
    return [
        (", ".join(f"{column}={value}" for column, value in slice_key), metrics)
        for slice_key, metrics in slices_of(uri)
    ]


def slice_values(uri: str) -> list[tuple[str, dict[str, float]]]:
    """Return the numeric metrics of each slice; the slice of all rows, "", comes first."""
    found = []
    for name, metrics in named_slices(uri):
        # NaN and infinities are strings.
        values = {
            metric: float(value["doubleValue"])
            for metric, value in metrics.items()
            if "doubleValue" in value
        }
        share = classes.largest_share(classes.matrix_of(metrics))
        if share is not None:
            values[LARGEST_CLASS] = share
        found.append((name, values))
    return found


def metric_number(value: float | None) -> str:
    """Return a metric with four decimals; `undefined` if it is not finite, `-` if it is missing."""
    if value is None:
        return "-"
    return f"{value:.4f}" if math.isfinite(value) else "undefined"
