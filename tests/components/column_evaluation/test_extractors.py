"""When an evaluation is column-wise, and TFMA's whole evaluation with and without it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.extractors.unbatch_extractor import UNBATCH_EXTRACTOR_STAGE_NAME
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2

from components.column_evaluation import custom_extractors
from components.column_evaluation.read_batch import read_batch
from pipeline.config.evaluation import EvaluationConfig


def config_of(*metrics: str, **fields: Any) -> tfma.EvalConfig:
    specs = [tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name=name) for name in metrics])]
    return tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key="y", prediction_key="p")],
        **{"metrics_specs": specs, **fields},
    )


def options(**fields: Any) -> config_pb2.Options:
    return config_pb2.Options(**{name: {"value": value} for name, value in fields.items()})


def test_what_needs_rows_is_left_to_tfma() -> None:
    for config in [
        config_of("AUC", "SquaredPearsonCorrelation"),
        config_of("AUC", options=options(compute_confidence_intervals=True)),
        config_of("AUC", options=options(min_slice_size=5)),
        config_of("AUC", slicing_specs=[tfma.SlicingSpec(slice_keys_sql="SELECT 1")]),
        config_of(
            metrics_specs=[
                tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name="NDCG")], query_key="q")
            ]
        ),
        config_of(
            metrics_specs=[
                tfma.MetricsSpec(
                    metrics=[tfma.MetricConfig(class_name="Precision")],
                    binarize=config_pb2.BinarizationOptions(top_k_list={"values": [1]}),
                )
            ]
        ),
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


def test_a_row_is_not_taken_for_a_batch() -> None:
    row = metric_types.StandardMetricInputs(
        {"labels": np.array([1]), "predictions": np.array([0.2, 0.8]), "example_weights": None}
    )
    with pytest.raises(ValueError, match=r"\(2,\)"):
        read_batch(row, flatten=False)


@pytest.mark.slow
def test_tfma_writes_the_same_results(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    y = (random.uniform(size=60) < 0.4).astype(np.float32)
    rows = pd.DataFrame(
        {
            "y": y,
            "p": np.clip(0.4 * y + 0.5 * random.uniform(size=60), 0, 1).astype(np.float32),
            "w": random.choice([0.0, 0.5, 2.0], 60).astype(np.float32),
            "city": random.choice(np.array(["x", "y", None], object), 60),
        }
    )
    evaluation = EvaluationConfig.model_validate(
        {"slices": ["city"], "thresholds": {"auc": {"lower_bound": 0.99}}}
    )
    found = []
    for name in ("rows", "columns"):
        config = evaluation.eval_config(label="y", kind="binary", weight="w")
        model = config.model_specs[0]
        model.prediction_key, model.signature_name = "p", ""
        del model.preprocessing_function_names[:]
        extractors = custom_extractors(None, config, None) if name == "columns" else None
        folder = str(tmp_path / name)
        result = tfma.analyze_raw_data(rows, config, output_path=folder, extractors=extractors)
        failures = [
            failure.metric_key.name
            for each in tfma.load_validation_result(folder).metric_validations_per_slice
            for failure in each.failures
        ]
        found.append(({key: values[""][""] for key, values in result.slicing_metrics}, failures))
    (by_row, failures), (by_column, found_failures) = found
    assert found_failures == failures
    assert by_column.keys() == by_row.keys()
    assert len(by_row) == 3
    for key, metrics in by_row.items():
        assert by_column[key].keys() == metrics.keys()
        for name, value in metrics.items():
            expected = value.get("doubleValue", math.nan)
            other = by_column[key][name].get("doubleValue", math.nan)
            assert other == pytest.approx(expected, rel=1e-6, nan_ok=True), (key, name)
