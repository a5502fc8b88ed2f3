"""Extractors for TFX's Evaluator that keep batches, where all metrics can add batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from absl import logging
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.api import types
from tensorflow_model_analysis.extractors import slice_key_extractor, unbatch_extractor
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.utils import model_util

from components.column_evaluation.column_metric import to_column_metric
from components.column_evaluation.read_batch import count_rows, select_rows
from components.column_evaluation.record_batches import prepare_record_batches
from components.column_evaluation.slices import slice_rows
from components.column_evaluation.tfma_combiners import is_column_combiner, rows_reason
from trainer_module.common.progress import RowCounter


def custom_extractors(
    eval_shared_model: Any, eval_config: tfma.EvalConfig | None, tensor_adapter_config: Any
) -> list[tfma.extractors.Extractor]:
    """Return the extractors of an evaluation, as TFX's Evaluator asks for them.

    If each metric can add batches, they yield one Extracts per slice and batch, and each metric in
    `eval_config` becomes a `ColumnMetric`, in place. Otherwise they are TFMA's default extractors,
    which yield one Extracts per row, after one that makes them read Parquet. For an EvalSavedModel
    the list is empty: TFX then passes serialized rows to TFMA's own.

    Args:
        eval_shared_model: The model or models, or None if predictions are in the examples.
        eval_config: Metrics and slices; it is changed.
        tensor_adapter_config: How TFMA makes tensors of the examples.
    """
    if eval_config is None or not tfma.is_batched_input(eval_shared_model, eval_config):
        logging.info(
            "Evaluating row by row: the model is an EvalSavedModel, or there is no EvalConfig."
        )
        return []
    extractors = [
        prepare_record_batches(),
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
    for each in metric_specs.to_computations(specs, eval_config=eval_config):
        if isinstance(each, metric_types.MetricComputation) and not is_column_combiner(
            each.combiner
        ):
            reason = rows_reason(each)
            if reason is not None:
                return reason
    return None


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
        for key, at in slice_rows(self._specs, preferred, features, rows):
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


_FIX_ROWS = 'use the Evaluator without module_path="components.column_evaluation"'
