"""Record batches as the extractors pass them on, and when an evaluation is column-wise."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.extractors.unbatch_extractor import UNBATCH_EXTRACTOR_STAGE_NAME
from tensorflow_model_analysis.proto import config_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.column_evaluation import custom_extractors
from components.column_evaluation.extractors import _PrepareRecordBatches


def config_of(*metrics: str, **fields: Any) -> tfma.EvalConfig:
    named = [tfma.MetricConfig(class_name=name) for name in metrics]
    of_metrics = {key: fields.pop(key) for key in ("query_key", "binarize") if key in fields}
    return tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key="y", prediction_key="p")],
        metrics_specs=[tfma.MetricsSpec(metrics=named, **of_metrics)],
        **fields,
    )


def options(**fields: Any) -> config_pb2.Options:
    return config_pb2.Options(**{name: {"value": value} for name, value in fields.items()})


def test_what_needs_rows_is_left_to_tfma() -> None:
    for config in [
        config_of("AUC", "SquaredPearsonCorrelation"),
        config_of("AUC", options=options(compute_confidence_intervals=True)),
        config_of("AUC", options=options(min_slice_size=5)),
        config_of("AUC", slicing_specs=[tfma.SlicingSpec(slice_keys_sql="SELECT 1")]),
        config_of("NDCG", query_key="q"),
        config_of("Precision", binarize=config_pb2.BinarizationOptions(top_k_list={"values": [1]})),
    ]:
        before = config.SerializeToString(deterministic=True)
        assert UNBATCH_EXTRACTOR_STAGE_NAME in {
            each.stage_name for each in custom_extractors(None, config, None)
        }
        assert config.SerializeToString(deterministic=True) == before


def test_names_and_thresholds_stay() -> None:
    config = config_of("AUC", "ExampleCount")
    threshold = tfma.MetricThreshold(value_threshold={"lower_bound": {"value": 0.5}})
    config.metrics_specs[0].metrics[0].threshold.CopyFrom(threshold)
    before = set(tfma.metrics.metric_thresholds_from_metrics_specs(config.metrics_specs, config))
    assert custom_extractors(None, config, None)
    after = tfma.metrics.metric_thresholds_from_metrics_specs(config.metrics_specs, config)
    assert set(after) == before
    once = config.SerializeToString(deterministic=True)
    assert custom_extractors(None, config, None), "the same configuration again"
    assert config.SerializeToString(deterministic=True) == once


def prepare(*batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the record batches that one bundle of record batches becomes."""
    prepared = _PrepareRecordBatches()
    prepared.start_bundle()
    found = [
        extracts
        for batch in batches
        for extracts in prepared.process({constants.ARROW_RECORD_BATCH_KEY: batch})
    ]
    found += [each.value for each in prepared.finish_bundle()]
    return [extracts[constants.ARROW_RECORD_BATCH_KEY] for extracts in found]


def lists(values: list[list[float] | None]) -> pa.Array:
    return pa.array(values, pa.large_list(pa.float32()))


def test_rows_of_parquet_become_tf_examples() -> None:
    values = [[float(i)] if i % 3 else ([] if i % 2 else None) for i in range(20_000)]
    batch = pa.RecordBatch.from_arrays([lists(values)], ["x"])
    found = prepare(batch)
    assert [each.num_rows for each in found] == [8_192, 8_192, 3_616]
    assert len(pickle.dumps(found[2])) < len(pickle.dumps(found[0])) / 2, "without other rows"
    rows = [x for each in found for (x,) in each.column(1).to_pylist()]
    assert found[0].schema.names == ["x", constants.ARROW_INPUT_COLUMN]
    expected = [each or None for each in values]
    assert ExamplesToRecordBatchDecoder().DecodeBatch(rows).column(0).to_pylist() == expected
    assert [x for each in found for x in each.column(0).to_pylist()] == expected
    parsed = tf.io.parse_example(rows, {"x": tf.io.FixedLenFeature([], tf.float32, -1.0)})
    np.testing.assert_array_equal(parsed["x"], [x[0] if x else -1.0 for x in values])


def test_small_batches_are_merged_and_keep_their_serialized_rows() -> None:
    rows = [[f"row {i}".encode()] for i in range(9_000)]
    batches = [
        pa.RecordBatch.from_arrays(
            [lists([[1.0]] * 750), pa.array(rows[i : i + 750], pa.large_list(pa.large_binary()))],
            ["x", constants.ARROW_INPUT_COLUMN],
        )
        for i in range(0, 9_000, 750)
    ]
    found = prepare(*batches)
    assert [each.num_rows for each in found] == [7_500, 1_500]
    assert [row for each in found for row in each.column(1).to_pylist()] == rows


def test_other_types_and_wide_rows_stay_apart() -> None:
    ints = pa.RecordBatch.from_arrays([pa.array([[1]], pa.large_list(pa.int64()))], ["x"])
    floats = pa.RecordBatch.from_arrays([lists([[1.0]])], ["x"])
    assert [each.column(0).to_pylist() for each in prepare(ints, floats, floats)] == [
        [[1]],
        [[1.0], [1.0]],
    ]
    wide = lists([[0.0] * 2_000] * 1_500)
    found = prepare(pa.RecordBatch.from_arrays([wide], ["x"]))
    assert [each.num_rows for each in found] == [1_000, 500]
