"""Sample rows on Beam, attribute their predictions, and summarise the attributions."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from absl import logging
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact
from tfx.utils import path_utils

from components.arrow_example_gen.examples import serialize
from components.input_gradients.model import Attributed, load_model
from components.input_gradients.sample import SampleRows
from components.input_gradients.summary import (
    ATTRIBUTION,
    BASELINE_PREDICTION,
    CLASS,
    COMPLETENESS_ERROR,
    PREDICTION,
    SLICE,
    SUMMARY_JSON,
    AttributionSummary,
    summarize,
)
from shared_core.atomic_files import atomic_write_text
from shared_core.nearest import nearest
from trainer_module.common.progress import RowCounter, RowsCounted, attached

EXAMPLES_KEY = "examples"
MODEL_KEY = "model"
ROWS_KEY = "rows"
STEPS_KEY = "steps"
SPLIT_KEY = "split"
SLICES_KEY = "slices"
ATTRIBUTIONS_KEY = "attributions"

_NODE = "InputGradients"
# Share of the mean change that attributions may miss before there is a warning.
_GAP = 0.01


class Executor(BaseBeamExecutor):
    """Reads examples and a model, writes attributions."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Sample rows, write their table and the summary.

        Raises:
            ValueError: The model has not the signature, or the split does not exist.
            Exception: Of Beam, with the message of a ValueError: the split is empty, rows do not
                fit the model, or a slice is not among their columns.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
        model = artifact_utils.get_single_instance(input_dict[MODEL_KEY])
        output = artifact_utils.get_single_instance(output_dict[ATTRIBUTIONS_KEY])
        split, steps = exec_properties[SPLIT_KEY], exec_properties[STEPS_KEY]
        splits = artifact_utils.decode_split_names(examples.split_names)
        if split not in splits:
            raise ValueError(
                f"InputGradients: split={split!r} is not in the examples under {examples.uri}; "
                f"{nearest(split, splits)}"
            )
        options = RowOptions(
            model=path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model)),
            path=os.path.join(output.uri, "rows", "rows.parquet"),
            what=f"split {split!r} of the examples under {examples.uri}",
            slices=tuple(json.loads(exec_properties[SLICES_KEY])),
            steps=steps,
        )
        try:
            load_model(options.model)  # a missing signature is reported before rows are read
            with self._make_beam_pipeline() as pipeline:
                sample = SampleRows(examples, split, _NODE, exec_properties[ROWS_KEY])
                _ = pipeline | sample | "Write" >> beam.ParDo(WriteAttributions(options))
        finally:
            load_model.cache_clear()
        with fileio.open(options.path, "rb") as file:
            table = pq.read_table(io.BytesIO(file.read()))
        summary = summarize(table, split=split, steps=steps)
        atomic_write_text(os.path.join(output.uri, SUMMARY_JSON), summary.model_dump_json(indent=1))
        _log_end(summary)


class RowOptions(NamedTuple):
    """How rows are attributed and where they are written.

    Attributes:
        model: Folder of the SavedModel.
        path: The Parquet file to write.
        what: Split and place of the examples, for messages.
        slices: Columns of the examples that are written beside the attributions.
        steps: Points of the path integral.
    """

    model: str
    path: str
    what: str
    slices: tuple[str, ...]
    steps: int


class WriteAttributions(beam.DoFn):
    """Write the attributions of the sampled rows, and yield the number of rows."""

    def __init__(self, options: RowOptions):
        """Attribute rows by these options."""
        self._options = options
        self._counter = RowCounter()

    def process(self, rows: pa.RecordBatch) -> Iterator[int]:
        """Attribute and write the rows.

        Raises:
            ValueError: There is no row, they do not fit the model, an attribution is not finite, or
                a slice is no column of theirs or has several values in a row.
        """
        options, names = self._options, rows.schema.names
        if not rows.num_rows:
            raise ValueError(
                f"InputGradients: {options.what} has no row: name another split, or give the "
                "examples more rows."
            )
        for name in options.slices:
            if name not in names:
                raise ValueError(
                    f"InputGradients: slices={list(options.slices)}: column {name!r} is in none of "
                    f"the rows of {options.what}; {nearest(name, sorted(names))}"
                )
        model = load_model(options.model)
        found = model.attribute(serialize(rows), options.what, steps=options.steps)
        buffer = io.BytesIO()
        pq.write_table(_table(found, rows, options.slices), buffer)
        # Beam may repeat this; it then writes the same file.
        fileio.makedirs(os.path.dirname(options.path))
        with fileio.open(options.path, "wb") as file:
            file.write(buffer.getvalue())
        self._counter.add(rows.num_rows)
        yield rows.num_rows


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
    for name, values in zip(found.columns, found.attributions.T, strict=True):
        columns[ATTRIBUTION + name] = pa.array(values.astype("float32"))
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


def _log_end(summary: AttributionSummary) -> None:
    rows = summary.slices[0].rows
    error, change = summary.mean_absolute_completeness_error, summary.mean_absolute_change
    if error > _GAP * change:
        logging.warning(
            "%s: with steps=%d, a row's attributions miss %.2g of its change on average, where the "
            "mean change is %.2g. Use more steps, such as steps=%d.",
            _NODE,
            summary.steps,
            error,
            change,
            4 * summary.steps,
        )
    logging.get_absl_logger().info(
        "%s: %d rows of split %s; the strongest columns are %s",
        _NODE,
        rows,
        summary.split,
        ", ".join(name for name, _ in summary.strongest(10)),
        extra=attached(RowsCounted(_NODE, rows)),
    )
