"""What a finished Transform took without complaint and a person should know.

    for warning in column_cautions(uri):
        print(warning)

All of it is read from the transform graph; nothing is computed from data.
"""

from __future__ import annotations

import numpy as np

from shared_core.coarse_floats import LABEL_STEPS, coarse_float32
from shared_core.feature_layout import FeatureLayout
from shared_core.run_warning import RunWarning
from transform.analyzers.fitted import Fitted, fitted_numbers
from transform.analyzers.statistic import MOMENTS
from transform.analyzers.statistics import LARGEST, STATISTICS, FittedStatistics
from transform.analyzers.unread import COUNTS, EXAMPLES, DateCounts
from transform.encode.bucketize import BOUNDARIES
from transform.encode.label import LABEL_EXTREMES
from transform.scale.table import SCALERS

UNREAD = 0.01  # share of unread dates from which a caution is written
_KEEP_OFFSET = ("none", "max_abs")  # scalers that subtract nothing before their float32
ONE_BUCKET = 0.5  # share of equal boundaries from which a caution is written


def column_cautions(uri: str) -> list[RunWarning]:
    """Return a warning for each column that lost what its data may have held.

    Args:
        uri: of the `transform_graph` artifact, or `TFTransformOutput`'s folder.

    Returns:
        Records of column, number, what is lost and what to do; none for a graph of another
        `preprocessing_fn`.
    """
    layout = FeatureLayout.from_transform_graph(uri)
    if layout is None:
        return []
    # A missing indicator has the source of what it stands beside.
    kinds = {c.source: c.kind for c in layout.columns if c.kind in SCALERS}
    fitted = fitted_numbers(uri)
    examples = {
        name: bytes(text).decode(errors="replace")
        for kept in fitted
        if kept.what == EXAMPLES
        for name, text in zip(kept.columns, kept.values.tolist(), strict=True)
    }
    found = []
    for kept in fitted:
        if kept.what == COUNTS:
            found += _unread_dates(kept, examples)
        elif kept.what == BOUNDARIES:
            found += _one_bucket(kept)
        elif kept.what == STATISTICS:
            found += _coarse_floats(kept, kinds, _raw_floats(uri))
        elif kept.what == LABEL_EXTREMES:
            for name, (low, high) in kept.by_column().items():
                found += coarse_float32(name, low, high, steps=LABEL_STEPS)
    return found


def _unread_dates(kept: Fitted, examples: dict[str, str]) -> list[RunWarning]:
    counts = kept.record(DateCounts, kept.values)
    return [
        RunWarning(
            what=f"column {name!r}: encode: date cannot read {unread / given:.1%} of the values "
            f"({unread:,} of {given:,}), for example {examples.get(name, '')[:60]!r}: they are "
            "missing to the model",
            fix="Write ISO 8601 (2013-05-06, 2013-05-06T17:30:00), say how they are written by "
            "date.format ('%d.%m.%Y'), or write ints with the right date.unit",
            column=name,
            number=float(unread),
            source="Transform",
        )
        for name, given, unread in zip(kept.columns, *counts, strict=True)
        if given and unread / given >= UNREAD
    ]


def _one_bucket(kept: Fitted) -> list[RunWarning]:
    found = []
    for name, boundaries in zip(kept.columns, kept.values, strict=True):
        values, counts = np.unique(boundaries, return_counts=True)
        most = int(counts.argmax())
        buckets = boundaries.size + 1
        share = counts[most] / buckets
        if boundaries.size > 1 and counts[most] > 1 and share >= ONE_BUCKET:
            found.append(
                RunWarning(
                    what=f"column {name!r}: {counts[most]} of the {boundaries.size} boundaries of "
                    f"encode: bucketize are {values[most]:g}, which most rows hold: of {buckets} "
                    f"buckets, at most {values.size + 1} are used",
                    fix="Give bucketize.boundaries, or use scale: gaussian",
                    column=name,
                    number=float(values[most]),
                    source="Transform",
                )
            )
    return found


def _coarse_floats(kept: Fitted, kinds: dict[str, str], floats: frozenset[str]) -> list[RunWarning]:
    found = []
    statistics = kept.record(FittedStatistics, kept.values)
    extremes = zip(kept.columns, statistics.minimum, statistics.maximum, strict=True)
    for name, low, high in extremes:
        scaler = SCALERS[kinds[name]]
        if scaler.first is not None:  # these are of a function's values
            continue
        reach = max(abs(low), abs(high))
        if not np.isfinite(reach):  # no value
            continue
        if reach > LARGEST and MOMENTS in scaler.requires:
            found.append(
                RunWarning(
                    what=f"column {name!r} goes up to {reach:.2g}: mean and variance take numbers "
                    "beyond 3e144 for that one",
                    fix="Derive its logarithm, or use scale: min_max or gaussian",
                    column=name,
                    number=float(reach),
                    source="Transform",
                )
            )
        if name in floats:
            effect = ": 0 everywhere" if scaler.requires else ""
            found += coarse_float32(name, low, high, if_constant=effect)
        elif scaler.name in _KEEP_OFFSET:
            found += coarse_float32(
                name, low, high, keeper=f"scale: {scaler.name}", fix="Use scale: z_score"
            )
    return found


def _raw_floats(uri: str) -> frozenset[str]:
    """Return raw columns that tf.Example holds as float32."""
    import tensorflow as tf
    import tensorflow_transform as tft

    spec = tft.TFTransformOutput(uri).raw_feature_spec()
    return frozenset(name for name, feature in spec.items() if feature.dtype == tf.float32)
