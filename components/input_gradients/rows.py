"""Write the attributions of a group of sampled rows as one Parquet file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from tfx.dsl.io import fileio

from components.input_gradients.model import Attributed, load_model
from components.input_gradients.summary import (
    ATTRIBUTION,
    BASELINE_PREDICTION,
    CLASS,
    COMPLETENESS_ERROR,
    PREDICTION,
    SLICE,
)

MOST_BASELINES = 100


class RowOptions(NamedTuple):
    """How rows are attributed and where they are written.

    Attributes:
        model: Folder of the SavedModel.
        folder: Folder of the Parquet files.
        what: Split and place of the examples, for messages.
        slices: Columns of the examples that are written beside the attributions.
        steps: Points of the path integral.
        transformed: Whether the examples are transformed.
        batch_rows: Rows of one forward and backward pass.
        has_baseline: Whether there are rows for the baseline; without, it is a row of zeros.
    """

    model: str
    folder: str
    what: str
    slices: tuple[str, ...]
    steps: int
    transformed: bool
    batch_rows: int
    has_baseline: bool


class WriteAttributions(beam.DoFn):
    """Write `rows-<number>.parquet` of each group, and yield its number of rows."""

    def __init__(self, options: RowOptions):
        """Attribute rows by these options."""
        self._options = options

    def process(
        self, group: tuple[int, list[bytes]], baselines: Sequence[bytes] = ()
    ) -> Iterator[int]:
        """Attribute and write the rows of a group.

        Args:
            group: Its number and its serialized tf.Examples.
            baselines: Serialized tf.Examples.

        Raises:
            ValueError: Rows do not fit the model, there are no or too many baselines, or a row has
                several values of a slice.
        """
        options = self._options
        number, records = group
        model = load_model(options.model, transformed=options.transformed)
        start = model.zeros()
        if options.has_baseline:
            _check_baselines(baselines)
            start = model.features(baselines, "the baseline")
        found = model.attribute(
            model.features(records, options.what),
            start,
            steps=options.steps,
            batch_rows=options.batch_rows,
        )
        _write(_table(found, records, options.slices), options.folder, number)
        yield len(records)


def _check_baselines(baselines: Sequence[bytes]) -> None:
    if not 1 <= len(baselines) <= MOST_BASELINES:
        count = "more" if baselines else "0"
        raise ValueError(
            f"InputGradients: baseline has {count} rows: give from 1 to {MOST_BASELINES}, each of "
            "which takes the time of all rows; or leave it out for a baseline of zeros."
        )


def _table(found: Attributed, records: Sequence[bytes], slices: Sequence[str]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        PREDICTION: pa.array(found.prediction),
        BASELINE_PREDICTION: pa.array(found.baseline_prediction),
        COMPLETENESS_ERROR: pa.array(found.completeness_error),
    }
    if found.classes is not None:
        columns[CLASS] = pa.array(found.classes)
    if slices:
        examples = [tf.train.Example.FromString(record) for record in records]
        for name in slices:
            values = [_slice_value(example, name) for example in examples]
            columns[SLICE + name] = pa.array(values, pa.string())
    for place, name in enumerate(found.columns):
        values = found.attributions[:, place].astype(np.float32)
        columns[ATTRIBUTION + name] = pa.array(values)
    return pa.table(columns)


def _slice_value(example: tf.train.Example, name: str) -> str | None:
    """Return a row's value as text, as the Evaluator shows it; None if it is missing."""
    feature = example.features.feature.get(name)
    kind = feature.WhichOneof("kind") if feature is not None else None
    values = getattr(feature, kind).value if kind else ()
    if len(values) > 1:
        raise ValueError(
            f"InputGradients: slices: column {name!r} has {len(values)} values in a row: name "
            "columns with one value per row."
        )
    if not values:
        return None
    return values[0].decode(errors="replace") if kind == "bytes_list" else str(values[0])


def _write(table: pa.Table, folder: str, number: int) -> None:
    # Beam may repeat a group; it then writes the same file.
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    path = os.path.join(folder, f"rows-{number:05d}.parquet")
    fileio.makedirs(folder)
    with fileio.open(path, "wb") as file:
        file.write(buffer.getvalue())
