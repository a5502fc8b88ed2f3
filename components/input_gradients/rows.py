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
from tfx.dsl.io import fileio

from components.arrow_example_gen.examples import serialize
from components.input_gradients.model import Attributed, load_model
from components.input_gradients.summary import (
    ATTRIBUTION,
    BASELINE_PREDICTION,
    CLASS,
    COMPLETENESS_ERROR,
    PREDICTION,
    SLICE,
)
from trainer_module.common.progress import RowCounter

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
    """

    model: str
    folder: str
    what: str
    slices: tuple[str, ...]
    steps: int
    transformed: bool
    batch_rows: int


class WriteAttributions(beam.DoFn):
    """Write `rows-<number>.parquet` of each group, and yield its number of rows."""

    def __init__(self, options: RowOptions):
        """Attribute rows by these options."""
        self._options = options
        self._counter = RowCounter()

    def process(
        self, group: tuple[int, pa.RecordBatch], baselines: pa.RecordBatch | None = None
    ) -> Iterator[int]:
        """Attribute and write the rows of a group.

        Args:
            group: Its number and its rows, as `ReadRows` returns them.
            baselines: Rows for the baseline; None: a row of zeros.

        Raises:
            ValueError: Rows do not fit the model, there are no or too many baselines, a row has
                several values of a slice, or an attribution is not finite.
        """
        options = self._options
        number, rows = group
        model = load_model(options.model, transformed=options.transformed)
        start = model.zeros()
        if baselines is not None:
            _check_baselines(baselines.num_rows)
            start = model.features(serialize(baselines), "the baseline")
        found = model.attribute(
            model.features(serialize(rows), options.what),
            start,
            steps=options.steps,
            batch_rows=options.batch_rows,
        )
        _check_finite(found, options)
        _write(_table(found, rows, options.slices), options.folder, number)
        self._counter.add(rows.num_rows)
        yield rows.num_rows


def _check_baselines(rows: int) -> None:
    if not 1 <= rows <= MOST_BASELINES:
        count = "more" if rows else "0"
        raise ValueError(
            f"InputGradients: baseline has {count} rows: give from 1 to {MOST_BASELINES}, each of "
            "which takes the time of all rows; or leave it out for a baseline of zeros."
        )


def _check_finite(found: Attributed, options: RowOptions) -> None:
    # The error is the sum of all numbers of a row.
    wrong = ~np.isfinite(found.completeness_error)
    if wrong.any():
        raise ValueError(
            f"InputGradients: {int(wrong.sum())} of {len(wrong)} rows of {options.what} have "
            f"attributions that are not finite, for the model under {options.model}: look for NaN "
            "and infinity in its features, in the baseline and in its weights."
        )


def _table(found: Attributed, rows: pa.RecordBatch, slices: Sequence[str]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        PREDICTION: pa.array(found.prediction),
        BASELINE_PREDICTION: pa.array(found.baseline_prediction),
        COMPLETENESS_ERROR: pa.array(found.completeness_error),
    }
    if found.classes is not None:
        columns[CLASS] = pa.array(found.classes)
    for name in slices:
        lists = rows.column(rows.schema.get_field_index(name)).to_pylist()
        columns[SLICE + name] = pa.array(
            [_slice_value(name, row or ()) for row in lists], pa.string()
        )
    for place, name in enumerate(found.columns):
        values = found.attributions[:, place].astype(np.float32)
        columns[ATTRIBUTION + name] = pa.array(values)
    return pa.table(columns)


def _slice_value(name: str, values: Sequence[bytes | int | float]) -> str | None:
    """Return a row's value as text, as the Evaluator shows it; None if it is missing."""
    if len(values) > 1:
        raise ValueError(
            f"InputGradients: slices: column {name!r} has {len(values)} values in a row: name "
            "columns with one value per row."
        )
    for value in values:
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return None


def _write(table: pa.Table, folder: str, number: int) -> None:
    # Beam may repeat a group; it then writes the same file.
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    path = os.path.join(folder, f"rows-{number:05d}.parquet")
    fileio.makedirs(folder)
    with fileio.open(path, "wb") as file:
        file.write(buffer.getvalue())
