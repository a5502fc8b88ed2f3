"""Rows that have a value for each of some columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import tensorflow as tf


@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tuple[int, tf.train.Example])
class WithValues(beam.PTransform):
    """What another transform reads, without the rows that lack a value of a column."""

    def __init__(self, rows: beam.PTransform, required: Sequence[str]):
        """Read rows and drop some.

        Args:
            rows: reads numbered tf.Examples.
            required: columns; NaN, infinities and empty texts are no values.
        """
        super().__init__()
        self._rows, self._required = rows, list(required)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Read the rows and drop those without a required value."""
        rows: Any = pipeline | self._rows
        return rows | "WithValues" >> beam.Filter(
            lambda row, required: has_values(row[1], required), self._required
        )


def has_values(example: tf.train.Example, required: Sequence[str]) -> bool:
    """Whether a row has a value for each of the columns."""
    return all(_has_value(example.features.feature[name]) for name in required)


def _has_value(feature: tf.train.Feature) -> bool:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return False
    values = getattr(feature, kind).value
    if kind == "float_list":
        return any(math.isfinite(value) for value in values)
    return any(value != b"" for value in values)
