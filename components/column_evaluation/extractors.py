"""Extractors for TFX's Evaluator that keep batches, where all metrics can add batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import tensorflow_model_analysis as tfma
from absl import logging
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.api import types
from tensorflow_model_analysis.extractors import slice_key_extractor, unbatch_extractor
from tensorflow_model_analysis.metrics import metric_specs
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.utils import model_util, util

from components.arrow_example_gen.columns import empty_to_null, serialize
from components.column_evaluation.combiners import (
    count_rows,
    rows_reason,
    select_rows,
    to_column_metric,
)
from trainer_module.common.progress import RowCounter

# TFXIO yields up to 1,000 rows of TFRecords, where a call of a signature costs more than its rows,
# and whole row groups of Parquet. Wide rows keep TFXIO's number, so memory stays bounded.
_LEAST_ROWS, _MOST_ROWS = 1_000, 8_192
_BATCH_BYTES = 4 << 20
_FIX_ROWS = 'use the Evaluator without module_path="components.column_evaluation"'


def custom_extractors(
    eval_shared_model: Any, eval_config: tfma.EvalConfig | None, tensor_adapter_config: Any
) -> list[tfma.extractors.Extractor]:
    """Return the extractors of an evaluation, as TFX's Evaluator asks for them.

    If each metric can add batches, they yield one Extracts per slice and batch, and each metric in
    `eval_config` becomes a `ColumnMetric`, in place. Otherwise they are TFMA's default extractors,
    which yield one Extracts per row, after one that makes them read Parquet. For an EvalSavedModel
    the list is empty: TFX then passes serialized rows to TFMA's own.
    """
    if eval_config is None or not tfma.is_batched_input(eval_shared_model, eval_config):
        logging.info(
            "Evaluating row by row: the model is an EvalSavedModel, or there is no EvalConfig."
        )
        return []
    extractors = [
        tfma.extractors.Extractor(
            stage_name="PrepareRecordBatches", ptransform=beam.ParDo(_PrepareRecordBatches())
        ),
        *tfma.default_extractors(
            eval_shared_model=eval_shared_model,
            eval_config=eval_config,
            tensor_adapter_config=tensor_adapter_config,
        ),
    ]
    reason = _find_rows_reason(eval_shared_model, eval_config)
    if reason is not None:
        logging.info("Evaluating row by row: %s.", reason)
        return extractors
    logging.info("Evaluating column by column: every metric adds batches.")
    by_row = (
        unbatch_extractor.UNBATCH_EXTRACTOR_STAGE_NAME,
        slice_key_extractor.SLICE_KEY_EXTRACTOR_STAGE_NAME,
    )
    for spec in eval_config.metrics_specs:
        for metric in spec.metrics:
            to_column_metric(metric)
    return [
        *(each for each in extractors if each.stage_name not in by_row),
        # Evaluators run after the stage of this name.
        tfma.extractors.Extractor(
            stage_name=slice_key_extractor.SLICE_KEY_EXTRACTOR_STAGE_NAME,
            ptransform=beam.ParDo(_SliceBatches(eval_config)),
        ),
    ]


def _find_rows_reason(eval_shared_model: Any, eval_config: tfma.EvalConfig) -> str | None:
    """Return why an evaluation needs rows, or None if batches give the same results."""
    options = eval_config.options
    if options.compute_confidence_intervals.value:
        return "confidence intervals resample rows"
    if options.min_slice_size.value > 1:
        return "min_slice_size counts rows"
    if any(spec.slice_keys_sql for spec in eval_config.slicing_specs):
        return "slice_keys_sql reads rows"
    if any(spec.query_key for spec in eval_config.metrics_specs):
        return "query_key groups rows"
    models = model_util.verify_and_update_eval_shared_models(eval_shared_model) or []
    for model in models:
        if model.model_type not in (constants.TF_GENERIC, constants.TF_KERAS):
            return f"a model of type {model.model_type} predicts rows"
        if model.model_type == constants.TF_KERAS and model.include_default_metrics:
            return "the metrics that a Keras model was compiled with need rows"
    specs = list(eval_config.metrics_specs)
    computations = metric_specs.to_computations(specs, eval_config=eval_config)
    reasons = (rows_reason(each) for each in computations if hasattr(each, "combiner"))
    return next((reason for reason in reasons if reason is not None), None)


class _SliceBatches(beam.DoFn):
    def __init__(self, eval_config: tfma.EvalConfig):
        self._models = [spec.name for spec in eval_config.model_specs]
        specs = list(eval_config.slicing_specs)
        for cross in eval_config.cross_slicing_specs:
            specs += [cross.baseline_spec, *cross.slicing_specs]
        self._specs = specs or [tfma.SlicingSpec()]
        self._counter = RowCounter()

    def process(self, element: types.Extracts) -> Iterator[types.Extracts]:
        values = {
            name: _dense_columns(name, element.get(name))
            for name in (
                constants.LABELS_KEY,
                constants.PREDICTIONS_KEY,
                constants.EXAMPLE_WEIGHTS_KEY,
            )
        }
        rows = count_rows(values[constants.PREDICTIONS_KEY])
        transformed = element.get(constants.TRANSFORMED_FEATURES_KEY) or {}
        preferred = (
            [transformed]
            if len(self._models) <= 1
            else [transformed[name] for name in self._models if name in transformed]
        )
        features = element.get(constants.FEATURES_KEY) or {}
        for key, at in _slice_rows(self._specs, preferred, features, rows):
            yield {
                **{name: select_rows(value, at) for name, value in values.items()},
                constants.SLICE_KEY_TYPES_KEY: slicer_lib.slice_keys_to_numpy_array([key]),
            }
        self._counter.add(rows)


def _dense_columns(name: str, value: Any) -> Any:
    """Return the arrays `[rows, values]` of tensors, in the same nested dicts."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {key: _dense_columns(f"{name}.{key}", each) for key, each in value.items()}
    if isinstance(value, types.VarLenTensorValue):
        rows = int(value.dense_shape[0])
        counts = np.bincount(np.asarray(value.indices[:, 0], np.int64), minlength=rows)
        if counts.size and (counts != counts[0]).any():
            raise ValueError(
                f"{name}: rows have {counts.min()} to {counts.max()} values; {_FIX_ROWS}"
            )
        return np.reshape(value.values, [rows, -1])
    if not isinstance(value, np.ndarray) or value.ndim < 1:
        raise ValueError(f"{name} is {type(value).__name__}; {_FIX_ROWS}")
    if value.size > len(value) and value.ndim > 2:
        raise ValueError(f"{name} has shape {value.shape}, not [rows, values]; {_FIX_ROWS}")
    return value if value.ndim == 2 else value.reshape([len(value), -1])


class _PrepareRecordBatches(beam.DoFn):
    """Merges or cuts record batches, and adds serialized tf.Examples.

    The batches have up to `_MOST_ROWS` rows, or fewer if these exceed `_BATCH_BYTES`. TFXIO adds
    the serialized rows of TFRecords, but not those of Parquet; TFMA's extractors pass them to the
    signatures of a model. In Parquet each column is a list of values per row; an empty list or
    null is a missing value.
    """

    def start_bundle(self) -> None:
        self._waiting: list[pa.RecordBatch] = []

    def process(self, element: types.Extracts) -> Iterator[types.Extracts]:
        batch = element.get(constants.ARROW_RECORD_BATCH_KEY)
        if batch is None:
            yield element
            return
        fitting = _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)
        most = min(max(_LEAST_ROWS, fitting), _MOST_ROWS)
        for start in range(0, batch.num_rows, most):
            part = batch.slice(start, most)
            if part.num_rows < batch.num_rows:
                # A slice is pickled with all rows, and Beam pickles some elements.
                part = part.take(pa.array(np.arange(part.num_rows)))
            rows = sum(each.num_rows for each in self._waiting)
            # Without a schema TFXIO infers the types of each batch.
            if rows and (rows + part.num_rows > most or part.schema != self._waiting[0].schema):
                yield self._merge()
            self._waiting.append(part)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._waiting:
            yield GlobalWindows.windowed_value(self._merge())

    def _merge(self) -> types.Extracts:
        (batch,) = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()
        self._waiting = []
        if constants.ARROW_INPUT_COLUMN not in batch.schema.names:
            columns, names = [empty_to_null(each) for each in batch.columns], batch.schema.names
            encoded = serialize(pa.RecordBatch.from_arrays(columns, names))
            rows = pa.LargeListArray.from_arrays(
                pa.array(np.arange(len(encoded) + 1)), pa.array(encoded, pa.large_binary())
            )
            batch = pa.RecordBatch.from_arrays(
                [*columns, rows], [*names, constants.ARROW_INPUT_COLUMN]
            )
        return {constants.ARROW_RECORD_BATCH_KEY: batch}


_SliceKey = tuple[tuple[str, Any], ...]


def _slice_rows(
    specs: list[config_pb2.SlicingSpec],
    preferred: Sequence[Mapping[str, Any]],
    others: Mapping[str, Any],
    rows: int,
) -> Iterator[tuple[_SliceKey, np.ndarray | slice]]:
    """Yield each slice that occurs in a batch, with the numbers of its rows.

    TFMA itself finds the slices, once for each distinct combination of the values that a
    specification reads: in the transformed features `preferred` of each model, else in `others`.
    """
    columns: dict[tuple[int, str], _Distinct] = {}
    found: dict[_SliceKey, list[np.ndarray]] = {}
    for spec in specs:
        read = []
        for name in (*spec.feature_keys, *spec.feature_values):
            sources = [i for i, each in enumerate(preferred) if each.get(name) is not None]
            for source in sources or ([-1] if others.get(name) is not None else []):
                features = others if source < 0 else preferred[source]
                if (source, name) not in columns:
                    columns[source, name] = _Distinct(name, features[name], rows)
                read.append((source, name))
        if not (spec.feature_keys or spec.feature_values):
            yield (), slice(None)
            continue
        single = slicer_lib.SingleSliceSpec(spec=spec)
        for first, group in _groups([columns[key].codes for key in read], rows):
            dicts: list[dict[str, np.ndarray]] = [{} for _ in range(len(preferred) + 1)]
            for source, name in read:
                dicts[source][name] = columns[source, name].values_of(first)
            for key in slicer_lib.get_slices_for_features_dicts(dicts[:-1], dicts[-1], [single]):
                found.setdefault(key, []).append(group)
    for key, groups in found.items():
        # Several specifications may make the same slice; a row is in it once.
        yield key, groups[0] if len(groups) == 1 else np.unique(np.concatenate(groups))


class _Distinct:
    """A column with a number for each distinct value, or set of values, of a row."""

    def __init__(self, name: str, column: Any, rows: int):
        """Number the values of a column: a dense, ragged or sparse tensor with `rows` rows."""
        self.codes = np.zeros(rows, np.int64)
        if isinstance(column, types.VarLenTensorValue):
            at, values = np.asarray(column.indices[:, 0], np.int64), np.asarray(column.values)
        else:
            at, values = np.arange(rows), np.ravel(column) if np.size(column) == rows else None
        if values is not None and len(np.unique(at)) == len(at):
            codes, distinct = pd.factorize(values, use_na_sentinel=False)
            self.codes[at] = codes + 1
            self._values = [values[:0], *np.reshape(distinct, [-1, 1])]
        else:
            self._values, seen = [], {}
            for row, extracts in enumerate(util.split_extracts({name: column})):
                value = extracts[name]
                flat = np.ravel(getattr(value, "values", value))
                self.codes[row] = seen.setdefault(tuple(flat.tolist()), len(seen))
                self._values += [flat] if len(seen) > len(self._values) else []

    def values_of(self, row: int) -> np.ndarray:
        """Return the values of a row, `[values]`."""
        return self._values[self.codes[row]]


def _groups(columns: list[np.ndarray], rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row and all rows of each combination of codes."""
    codes = np.zeros(rows, np.int64)
    for each in columns:
        _, codes = np.unique(codes * (each.max(initial=0) + 1) + each, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    for group in np.split(order, ends[:-1]) if rows else []:
        yield int(group[0]), group
