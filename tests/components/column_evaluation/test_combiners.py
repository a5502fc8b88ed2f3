"""Column-wise evaluation against TFMA's own evaluation by rows.

Reference: TFMA's combiners and slicer, row by row, on the same batches. Tolerance: 1e-6 relative,
1e-9 absolute; counts and slices are exact. Accumulators are pickled before they are merged.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import hypothesis
import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from hypothesis import strategies as st
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.api import types
from tensorflow_model_analysis.extractors.slice_key_extractor import ExtractSliceKeysFn
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.slicer.slicer_lib import SingleSliceSpec
from tensorflow_model_analysis.utils import util

from components.column_evaluation.combiners import _ColumnCombiner, to_column_metric
from components.column_evaluation.extractors import _find_rows_reason, _SliceBatches
from pipeline.config.evaluation import METRICS, EvaluationConfig

KINDS = ("binary", "multiclass", "regression")
SLICES = [
    {},
    {"feature_keys": ["city"]},
    {"feature_keys": ["city", "tags"]},
    {"feature_keys": ["tags"], "feature_values": {"zone": "1"}},
    {"feature_values": {"city": "x"}},  # the same slices as those of the first column
    {"feature_keys": ["absent"]},
]


def config_of(kind: Any) -> tfma.EvalConfig:
    """Every metric that the YAML offers for this kind, with the comparison with a constant."""
    names = tuple(name for name, metric in METRICS.items() if kind in metric.kinds)
    evaluation = EvaluationConfig.model_validate(
        {"metrics": names, "require_better_than_constant": True}
    )
    config = evaluation.eval_config(label="y", kind=kind, weight="w")
    del config.slicing_specs[:]
    config.slicing_specs.extend(tfma.SlicingSpec(**each) for each in SLICES)
    extra = ("MeanPrediction", "Calibration", "AUC", "ConfusionMatrixAtThresholds")
    for name in extra if kind == "binary" else ():
        text = '"thresholds": [0.2, 0.5]' if name.startswith("Confusion") else ""
        config.metrics_specs[0].metrics.append(tfma.MetricConfig(class_name=name, config=text))
    if kind == "multiclass":
        per_class = [tfma.MetricConfig(class_name=name) for name in ("AUC", "Precision", "Recall")]
        classes = config_pb2.BinarizationOptions(class_ids={"values": [0, 2]})
        average = config_pb2.AggregationOptions(macro_average=True, class_weights={0: 1.0, 1: 2.0})
        micro = config_pb2.AggregationOptions(micro_average=True)
        for options in ({"binarize": classes}, {"aggregate": average}, {"aggregate": micro}):
            config.metrics_specs.append(tfma.MetricsSpec(metrics=per_class, **options))
    return config


def ragged(rows: list[list[Any]], dtype: Any) -> types.VarLenTensorValue:
    return types.VarLenTensorValue.from_dense_rows([np.array(row, dtype) for row in rows])


@st.composite
def batches(draw: st.DrawFn, kind: str) -> list[dict[str, Any]]:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    one_class = draw(st.booleans())
    found = []
    for rows in draw(st.lists(st.integers(1, 12), min_size=1, max_size=2)):
        y = random.integers(0, 3 if kind == "multiclass" else 2, rows) * (not one_class)
        if kind == "regression":
            y, p = random.normal(size=rows).astype(np.float32) + 2, random.normal(size=[rows, 1])
        elif kind == "binary":
            y, p = y.astype(np.float32), random.choice([0.1, 0.5, 0.7, 0.35], [rows, 1])
        else:
            p = random.dirichlet([1, 1, 1], rows)
        city = [[v] if v else [] for v in random.choice([b"x", b"y", b""], rows)]
        tags = [random.choice([1, 2, 3], random.integers(0, 4)).tolist() for _ in range(rows)]
        weights = random.choice([0.0, 0.5, 1.0, 3.0], rows)
        raw = {"city": ragged(city, object), "tags": ragged(tags, np.int64)}
        found.append(
            {
                constants.LABELS_KEY: y,
                constants.PREDICTIONS_KEY: p.astype(np.float32),
                constants.EXAMPLE_WEIGHTS_KEY: weights.astype(np.float32),
                constants.FEATURES_KEY: raw,
                constants.TRANSFORMED_FEATURES_KEY: {"zone": random.integers(0, 2, [rows, 1])},
            }
        )
    return found


def by_rows(config: tfma.EvalConfig, batch: dict[str, Any]) -> list[dict[str, Any]]:
    specs = [SingleSliceSpec(spec=spec) for spec in config.slicing_specs]
    slicer = ExtractSliceKeysFn(config, False)
    return [slicer.process(row, specs)[0] for row in util.split_extracts(batch)]


def by_columns(config: tfma.EvalConfig, batch: dict[str, Any]) -> list[dict[str, Any]]:
    return list(_SliceBatches(config).process(batch))


def results(config: tfma.EvalConfig, parts: list[list[dict[str, Any]]]) -> dict[Any, Any]:
    """Slice -> key -> what a combiner returns; TFMA derives the other metrics from these."""
    computations = list(
        dict.fromkeys(metric_specs.to_computations(list(config.metrics_specs), eval_config=config))
    )
    found: dict[Any, Any] = {}
    for c in computations:
        if not isinstance(c, metric_types.MetricComputation):
            continue
        c.combiner.setup()
        merged: dict[Any, list[Any]] = {}
        for part in parts:
            accumulators: dict[Any, Any] = {}
            for extracts in part:
                inputs = metric_types.StandardMetricInputs(extracts)
                for key in extracts[constants.SLICE_KEY_TYPES_KEY]:
                    before = accumulators.get(key)
                    if before is None:
                        before = c.combiner.create_accumulator()
                    accumulators[key] = c.combiner.add_input(before, inputs)
            for key, accumulator in accumulators.items():
                copy = pickle.loads(pickle.dumps(c.combiner.compact(accumulator)))
                merged.setdefault(key, []).append(copy)
        for key, accumulators_of_key in merged.items():
            # Given a sequence, some combiners of TFMA add the first part twice.
            as_given = list if isinstance(c.combiner, _ColumnCombiner) else iter
            whole = c.combiner.merge_accumulators(as_given(accumulators_of_key))
            output = c.combiner.extract_output(whole)
            found.setdefault(key, {}).update(output)
    return found


def check_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        for key in expected:
            check_equal(found[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
    elif hasattr(expected, "__dict__") or hasattr(expected, "__slots__"):
        for name in getattr(expected, "__slots__", None) or vars(expected):
            check_equal(getattr(found, name), getattr(expected, name))
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def column_config(config: tfma.EvalConfig) -> tfma.EvalConfig:
    columns = tfma.EvalConfig.FromString(config.SerializeToString())
    for spec in columns.metrics_specs:
        for metric in spec.metrics:
            to_column_metric(metric)
    return columns


@pytest.fixture(scope="module", params=KINDS)
def kind_and_configs(request) -> tuple[str, tfma.EvalConfig, tfma.EvalConfig]:
    """Return a kind of label, and its configurations by rows and by columns."""
    config = config_of(request.param)
    return request.param, config, column_config(config)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@hypothesis.settings(max_examples=4, deadline=None)
@hypothesis.given(data=st.data())
def test_metrics_and_slices_equal_those_of_rows(kind_and_configs, data: st.DataObject) -> None:
    kind, config, columns = kind_and_configs
    assert _find_rows_reason(None, config) is None
    tables = data.draw(batches(kind))
    expected = results(config, [by_rows(config, batch) for batch in tables])
    check_equal(results(columns, [by_columns(columns, batch) for batch in tables]), expected)


def with_names(names: tuple[str, str], of_name: Any) -> dict[str, Any]:
    return {name: of_name(i) for i, name in enumerate(names)}


def two_models(batch: dict[str, Any], config: tfma.EvalConfig) -> None:
    """A candidate and a baseline, whose predictions, labels and weights are dicts by model."""
    first, p = config.model_specs[0], batch[constants.PREDICTIONS_KEY]
    config.model_specs.append(first)
    names = ("candidate", "baseline")
    for spec, name in zip(config.model_specs, names, strict=True):
        spec.name, spec.is_baseline = name, name == "baseline"
    for metrics in config.metrics_specs:
        metrics.model_names.extend(names)
    batch[constants.PREDICTIONS_KEY] = with_names(names, lambda i: p * (1 - 0.3 * i))
    for key in (constants.LABELS_KEY, constants.EXAMPLE_WEIGHTS_KEY):
        value = batch[key]
        batch[key] = with_names(names, lambda i, value=value: value)


def two_outputs(batch: dict[str, Any], config: tfma.EvalConfig) -> None:
    """A model with two outputs, each with a label."""
    names = ("tip", "fare")
    spec = config.model_specs[0]
    spec.label_key = ""
    for name in names:
        spec.label_keys[name] = f"label_{name}"
    for metrics in config.metrics_specs:
        metrics.output_names.extend(names)
    p, y = batch[constants.PREDICTIONS_KEY], batch[constants.LABELS_KEY]
    batch[constants.PREDICTIONS_KEY] = with_names(names, lambda i: p * (1 - 0.3 * i))
    batch[constants.LABELS_KEY] = with_names(names, lambda i: np.roll(y, i))


def nan_predictions(batch: dict[str, Any], config: tfma.EvalConfig) -> None:
    batch[constants.PREDICTIONS_KEY][::3] = np.nan


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("kind", "names", "change"),
    [
        ("binary", ["AUC", "BinaryAccuracy", "Calibration", "ExampleCount"], two_models),
        ("binary", ["AUC", "Precision", "MeanLabel"], two_outputs),
        ("regression", ["MeanAbsoluteError", "MeanSquaredError", "MeanLabel"], nan_predictions),
        ("binary", ["Precision", "Recall", "MeanPrediction"], nan_predictions),
    ],
)
def test_models_outputs_and_nan(kind: str, names: list[str], change: Any) -> None:
    batch = hypothesis.find(batches(kind), lambda found: len(found[0][constants.LABELS_KEY]) > 6)[0]
    config = tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key="y", example_weight_key="w")],
        slicing_specs=[tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=["city"])],
        metrics_specs=[
            tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name=name) for name in names])
        ],
    )
    change(batch, config)
    columns = column_config(config)
    assert _find_rows_reason(None, config) is None
    expected = results(config, [by_rows(config, batch)])
    check_equal(results(columns, [by_columns(columns, batch)]), expected)
