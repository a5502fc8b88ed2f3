"""Sample rows on Beam, attribute their predictions, and summarise the attributions."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types
import tensorflow as tf
from absl import logging
from tfx.components.util import tfxio_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact
from tfx.utils import path_utils

from components.arrow_example_gen.columns import Kind, as_lists, flat_values, kind_of, serialize
from components.arrow_example_gen.row_hash import row_hashes
from components.input_gradients.summary import (
    ATTRIBUTION,
    BASELINE_PREDICTION,
    COMPLETENESS_ERROR,
    PREDICTION,
    SUMMARY_JSON,
    AttributionSummary,
    summarize,
)
from shared_core.atomic_files import atomic_write_text
from shared_core.nearest import nearest
from trainer_module.common.progress import RowCounter, RowsCounted, attached
from trainer_module.gradients.inputs import quadrature
from trainer_module.tfx.input_gradients import SHARES, SIGNATURE, WEIGHTS, argument_name

EXAMPLES_KEY = "examples"
MODEL_KEY = "model"
ROWS_KEY = "rows"
STEPS_KEY = "steps"
SPLIT_KEY = "split"
ATTRIBUTIONS_KEY = "attributions"

_NODE = "InputGradients"
_TRANSFORM = "transform_features"
_BATCH_ROWS = 256  # of one forward and backward pass: they bound the memory
# Share of the mean change that attributions may miss before there is a warning.


class Executor(BaseBeamExecutor):
    """Reads examples and a model, writes attributions."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Sample rows, write their table and the summary; ValueError if they do not fit."""
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
        model = artifact_utils.get_single_instance(input_dict[MODEL_KEY])
        output = artifact_utils.get_single_instance(output_dict[ATTRIBUTIONS_KEY])
        split, steps = exec_properties[SPLIT_KEY], exec_properties[STEPS_KEY]
        splits = artifact_utils.decode_split_names(examples.split_names)
        if split not in splits:
            raise ValueError(
                f"{_NODE}: split={split!r} is not in the examples under {examples.uri}; "
                f"{nearest(split, splits)}"
            )
        folder = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
        path = os.path.join(output.uri, "rows", "rows.parquet")
        what = f"split {split!r} of the examples under {examples.uri}"
        try:
            _load(folder)  # a missing signature is reported before rows are read
            with self._make_beam_pipeline() as pipeline:
                sample = _SampleRows(examples, split, _NODE, exec_properties[ROWS_KEY])
                write = beam.ParDo(_Write(path, RowCounter()), folder, what, steps)
                _ = pipeline | sample | "Write" >> write
        finally:
            _load.cache_clear()
        with fileio.open(path, "rb") as file:
            summary = summarize(pq.read_table(io.BytesIO(file.read())), split=split, steps=steps)
        atomic_write_text(os.path.join(output.uri, SUMMARY_JSON), summary.model_dump_json(indent=1))
        _log_end(summary)


class _Write(beam.DoFn):
    """Write the attributions of the sampled rows; if Beam repeats it, the same file."""

    def __init__(self, path: str, counter: RowCounter):
        self._path, self._counter = path, counter

    def process(self, rows: pa.RecordBatch, *options: Any) -> Iterator[int]:
        buffer = io.BytesIO()
        pq.write_table(_attributions_of(rows, *options), buffer)
        fileio.makedirs(os.path.dirname(self._path))
        with fileio.open(self._path, "wb") as file:
            file.write(buffer.getvalue())
        self._counter.add(rows.num_rows)
        yield rows.num_rows


def _attributions_of(rows: pa.RecordBatch, folder: str, what: str, steps: int) -> pa.Table:
    """Return the integrated gradients of raw rows, beside the rows, by the SavedModel in `folder`.

    `what` names the rows in messages; `steps` are points of the Gauss-Legendre quadrature.
    ValueError: there is no row, the rows do not fit the model, or an attribution is not finite.
    """
    if not rows.num_rows:
        raise ValueError(
            f"{_NODE}: {what} has no row: name another split, or give the examples more rows."
        )
    model = _load(folder)
    path = dict(zip((SHARES, WEIGHTS), map(tf.constant, quadrature(steps)), strict=True))
    signature = model.signatures[SIGNATURE]
    arguments = signature.structured_input_signature[1]
    specs = {name: spec for name, spec in arguments.items() if name not in path}
    parts: list[dict[str, np.ndarray]] = []
    records = serialize(rows)
    for start in range(0, len(records), _BATCH_ROWS):
        examples = tf.constant(list(records[start : start + _BATCH_ROWS]))
        try:
            made = model.signatures[_TRANSFORM](examples=examples)
            made = {argument_name(name): tensor for name, tensor in made.items()}
            features = {
                name: tf.ensure_shape(tf.cast(made[name], spec.dtype), spec.shape)
                for name, spec in specs.items()
            }
        except (tf.errors.InvalidArgumentError, KeyError, ValueError) as error:
            raise ValueError(
                f"{_NODE}: {what} does not fit the model under {folder}, which takes "
                f"{', '.join(sorted(specs))}: {_reason(error)} Give the raw examples that the "
                "model was trained with."
            ) from None
        found = signature(**features, **path)
        parts.append({name: tensor.numpy() for name, tensor in found.items()})
    names = [name.decode() for name in parts[0].pop("columns")]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    attributions = whole.pop("attributions").astype(np.float64)
    table = {n: each if n == "class" else each.astype(np.float64) for n, each in whole.items()}
    # What a row's attributions miss of its change: a sum of all numbers of the row.
    missed = table[PREDICTION] - table[BASELINE_PREDICTION] - attributions.sum(axis=1)
    if not np.isfinite(missed).all():
        raise ValueError(
            f"{_NODE}: {int((~np.isfinite(missed)).sum())} of {len(missed)} rows of {what} have "
            f"attributions that are not finite, for the model under {folder}: look for NaN and "
            "infinity in its features and in its weights."
        )
    table[COMPLETENESS_ERROR] = missed
    raw = zip(rows.schema.names, rows.columns, strict=True)
    table |= {f"raw.{name}": column for name, column in sorted(raw, key=lambda pair: pair[0])}
    columns = attributions.astype(np.float32).T
    return pa.table(table | {ATTRIBUTION + n: x for n, x in zip(names, columns, strict=True)})


@functools.lru_cache(maxsize=1)
def _load(folder: str) -> Any:
    """Return the model of this process, after checking its signatures."""
    loaded: Any = tf.saved_model.load(folder)
    for name, fix in (
        (
            SIGNATURE,
            "train it with `explain:` (in a graph of yours, create_trainer(..., "
            "input_gradients=True)), or export the result of "
            "trainer_module.input_gradients_signature under this name",
        ),
        (_TRANSFORM, "export it; it turns raw examples into the model's features"),
    ):
        if name not in loaded.signatures:
            raise ValueError(
                f"{_NODE}: the model under {folder} has no signature {name!r}, only "
                f"{', '.join(sorted(loaded.signatures))}: {fix}."
            )
    return loaded


def _reason(error: Exception) -> str:
    """Return the line of an error that says what is wrong; TensorFlow puts its graph around it."""
    lines = [line.strip() for line in (getattr(error, "message", "") or str(error)).splitlines()]
    around = ("Graph execution error", "Detected at node", "<stack traces", "File ", "[[")
    return next((f"{x.rstrip('.')}." for x in lines if x and not x.startswith(around)), "")


def _log_end(summary: AttributionSummary) -> None:
    error, change = summary.mean_absolute_completeness_error, summary.mean_absolute_change
    if error > 0.01 * change:
        logging.warning(
            "%s: with steps=%d, a row's attributions miss %.2g of its change on average, where the "
            "mean change is %.2g. Use more steps, such as steps=%d.",
            _NODE, summary.steps, error, change, 4 * summary.steps,
        )  # fmt: skip
    strongest = ", ".join(name for name, _ in summary.strongest(10))
    logging.get_absl_logger().info(
        "%s: %d rows of split %s; the strongest columns are %s",
        _NODE, summary.rows, summary.split, strongest,
        extra=attached(RowsCounted(_NODE, summary.rows)),
    )  # fmt: skip


_BYTES = 4 << 20  # of the rows that are hashed together: hashes take eight times as many
_LISTS: dict[Kind, pa.DataType] = {
    "int": pa.large_list(pa.int64()),
    "float": pa.large_list(pa.float32()),
    "string": pa.large_list(pa.large_binary()),
}

# Hashes `[rows]` of a batch, and the batch.
_Hashed = tuple[np.ndarray, pa.RecordBatch]


class _SampleRows(beam.PTransform):
    """Return one batch with the rows of a split that have the smallest hashes, in that order.

    Equal rows have equal hashes and equal attributions, so that it does not matter which of them
    is taken. A worker holds at most 2 * `rows` rows and one batch. The columns are
    `large_list<float | int64 | large_binary>`, null where a row has no value, or of type null where
    no row has one.
    """

    def __init__(self, examples: Artifact, split: str, node: str, rows: int):
        """Sample at most `rows` rows; `node` names the reader in Beam's metrics."""
        super().__init__()
        self._examples, self._split, self._node, self._rows = examples, split, node, rows

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection[pa.RecordBatch]:
        """Return a collection with one batch, from TFRecord or Parquet files."""
        tfxio = tfxio_utils.get_split_tfxio(
            examples=[self._examples], split=self._split, telemetry_descriptors=[self._node]
        )
        batches: Any = pipeline | tfxio.BeamSource() | beam.FlatMap(_as_lists)
        return batches | beam.CombineGlobally(_SmallestHashes(self._rows))


def _as_lists(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts. A batch of a Parquet file is a whole row group."""
    columns = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        kind = kind_of(field.type)
        if types.is_null(field.type):
            columns[field.name] = column
        elif kind is not None:
            columns[field.name] = _lists_of(column, kind)
    lists = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    step = max(1, _BYTES * lists.num_rows // max(1, lists.nbytes))
    for start in range(0, lists.num_rows, step):
        yield lists.slice(start, step)


def _lists_of(column: pa.Array, kind: Kind) -> pa.Array:
    wanted = _LISTS[kind]
    lists = column if column.type == wanted else as_lists(column, kind)
    ends, values = flat_values(lists)
    if values.null_count:
        ends, values = flat_values(as_lists(column, kind))
    # An empty list would be a feature with values of length 0 in a tf.Example, which is an error.
    empty = np.append(np.diff(ends) == 0, False)
    return pa.LargeListArray.from_arrays(
        pa.array(ends, pa.int64(), mask=empty), values.cast(wanted.value_type)
    )


class _SmallestHashes(beam.CombineFn):
    """Keep the rows with the smallest hashes."""

    def __init__(self, rows: int):
        self._rows = rows

    def create_accumulator(self) -> list[_Hashed]:
        return []

    def add_input(self, accumulator: list[_Hashed], batch: pa.RecordBatch) -> list[_Hashed]:
        known = [field.name for field in batch.schema if not types.is_null(field.type)]
        accumulator.append((row_hashes(batch, known), batch))
        held = sum(len(hashes) for hashes, _ in accumulator)
        return self.compact(accumulator) if held > 2 * self._rows else accumulator

    def merge_accumulators(self, accumulators: Iterable[list[_Hashed]]) -> list[_Hashed]:
        merged: list[_Hashed] = []
        for accumulator in accumulators:
            merged = self.compact([*merged, *accumulator])
        return merged

    def compact(self, accumulator: list[_Hashed]) -> list[_Hashed]:
        if not accumulator:
            return accumulator
        hashes = np.concatenate([hashes for hashes, _ in accumulator])
        order = np.argsort(hashes, kind="stable")[: self._rows]
        batch = _concatenated([batch for _, batch in accumulator])
        # A slice would be pickled with all rows of its batch.
        columns = [column.take(pa.array(order)) for column in batch.columns]
        return [(hashes[order], pa.RecordBatch.from_arrays(columns, batch.schema.names))]

    def extract_output(self, accumulator: list[_Hashed]) -> pa.RecordBatch:
        found = self.compact(accumulator)
        return found[0][1] if found else pa.RecordBatch.from_arrays([], [])


def _concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of batches; a batch may lack columns of others."""
    try:
        schema = pa.unify_schemas([batch.schema for batch in batches])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"InputGradients: {error}: give all rows of a column one type.") from None

    def part(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        place = batch.schema.get_field_index(field.name)
        known = place >= 0 and not types.is_null(batch.schema.types[place])
        return batch.column(place) if known else pa.nulls(batch.num_rows, field.type)

    columns = [pa.concat_arrays([part(batch, field) for batch in batches]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema.names)
