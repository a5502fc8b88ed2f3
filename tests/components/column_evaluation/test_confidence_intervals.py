"""Confidence intervals by columns.

References: the same evaluation without intervals (1e-6 relative); NumPy and scikit-learn on the
same samples (1e-6); TFMA's own resampling of rows (a standard error within a factor of 2: from 20
samples it has a standard deviation of 16 %).
"""

from __future__ import annotations

import base64
import pickle
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow_model_analysis as tfma
from scipy import stats
from sklearn.metrics import roc_auc_score
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.evaluators import jackknife, poisson_bootstrap
from tensorflow_model_analysis.evaluators.confidence_intervals_util import SampleMetrics
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.proto import config_pb2
from tfx_bsl.arrow.table_util import CanonicalizeRecordBatch

from components.column_evaluation import custom_extractors
from components.column_evaluation.confidence_intervals import (
    COUNTS_KEY,
    Sampling,
    _SampleCombiner,
    find_sampling,
)
from pipeline.config.evaluation import METRICS as OFFERED
from pipeline.config.evaluation import EvaluationConfig

SAMPLES = 20
METHODS = ("JACKKNIFE", "POISSON_BOOTSTRAP")
FEW_METRICS = ("auc", "binary_accuracy", "mean_label")
KEYS = (constants.LABELS_KEY, constants.PREDICTIONS_KEY, constants.EXAMPLE_WEIGHTS_KEY, COUNTS_KEY)


def mean(values: np.ndarray, w: np.ndarray) -> float:
    return float(values @ w / w.sum())


def auc(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> float:
    return float(roc_auc_score(y, p, sample_weight=w)) if 0 < y @ w < w.sum() else np.nan


METRICS: dict[str, Callable[[Any, Any, Any], float]] = {
    "auc": auc,
    "binary_accuracy": lambda y, p, w: mean((p > 0.5) == y, w),
    "binary_crossentropy": lambda y, p, w: mean(-np.log(np.where(y, p, 1 - p)), w),
    "recall": lambda y, p, w: mean(p > 0.5, w * y),
    "mean_label": lambda y, p, w: mean(y, w),
}


def rows_of(seed: int, rows: int) -> pd.DataFrame:
    """Return rows with weights of 0, and cities that are missing, of one class, and of one row."""
    random = np.random.default_rng(seed)
    city = random.choice(np.array(["x", "y", "one class", None], object), rows)
    city[:1] = "alone" if seed == 0 else None
    y = (random.uniform(size=rows) < 0.4) & (city != "one class")
    # Each prediction has a bucket of TFMA's histogram to itself, and none is at a threshold.
    p, q = ((random.integers(1, 50, rows) * 2 + 1) / 101 for _ in range(2))
    return pd.DataFrame(
        {
            "y": y.astype(np.float32),
            "p": np.where(y, np.sqrt(p), p).round(2) + 0.003,
            "q": q,
            "w": random.choice([0.0, 0.5, 2.0], rows).astype(np.float32),
            "city": city,
        }
    ).astype({"p": np.float32, "q": np.float32})


BATCHES = [rows_of(seed, rows) for seed, rows in enumerate((300, 200, 100))]


MODELS = {"ours": "p", "base": "q"}


def config_of(method: str | None, names: Sequence[str], models: Sequence[str]) -> tfma.EvalConfig:
    evaluation = EvaluationConfig.model_validate(
        {
            "metrics": [name for name in names if name != "mean_label"],
            "slices": ["city"],
            "thresholds": {"auc": {"lower_bound": 0.5}},
            "require_better_than_constant": False,
        }
    )
    config = evaluation.eval_config(label="y", kind="binary", weight="w")
    (model,) = config.model_specs
    model.signature_name = ""
    del model.preprocessing_function_names[:]
    config.model_specs.extend([model] * (len(models) - 1))
    for spec, name in zip(config.model_specs, models, strict=True):
        spec.name, spec.prediction_key, spec.is_baseline = name, MODELS[name], name == "base"
    set_method(config, method)
    return config


def set_method(config: tfma.EvalConfig, method: str | None) -> None:
    if method:
        config.options.compute_confidence_intervals.value = True
        config.options.confidence_intervals.method = getattr(
            config_pb2.ConfidenceIntervalOptions, method
        )


def evaluate(folder: Path, method: str | None) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the loaded values by model, slice and name, and the batches of each slice."""
    config = config_of(method, list(METRICS), list(MODELS))
    prepare, *extractors = custom_extractors(None, config, None)
    assert prepare.stage_name == "PrepareRecordBatches"  # it would merge the batches

    def keep(extracts: Any) -> Any:
        (folder / f"{uuid.uuid4()}.batch").write_bytes(pickle.dumps(extracts))
        return extracts

    folder.mkdir()
    batches = [CanonicalizeRecordBatch(pa.RecordBatch.from_pandas(rows)) for rows in BATCHES]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = (
            pipeline
            | beam.Create(batches)
            | tfma.ExtractEvaluateAndWriteResults(
                eval_config=config,
                extractors=[*extractors, tfma.extractors.Extractor("Keep", beam.Map(keep))],
                output_path=str(folder / "result"),
            )
        )
    parts: dict[Any, list[Any]] = {}
    for path in folder.glob("*.batch"):
        extracts = pickle.loads(path.read_bytes())
        (key,) = extracts[constants.SLICE_KEY_TYPES_KEY]
        parts.setdefault(key, []).append(extracts)
    assert tfma.load_validation_result(str(folder / "result")).validation_ok
    values = {
        (model, key, name): value
        for model in MODELS
        for key, outputs in tfma.load_eval_result(
            str(folder / "result"), model_name=model
        ).slicing_metrics
        for name, value in outputs[""][""].items()
    }
    return values, parts


@pytest.fixture(scope="module")
def without_intervals(tmp_path_factory) -> dict[Any, Any]:
    return evaluate(tmp_path_factory.mktemp("evaluation") / "points", None)[0]


@pytest.fixture(scope="module", params=METHODS)
def evaluated(request, tmp_path_factory) -> tuple[str, dict[Any, Any], dict[Any, Any]]:
    folder = tmp_path_factory.mktemp("evaluation") / request.param
    return request.param, *evaluate(folder, request.param)


def sampled_values(method: str, model: str, name: str, parts: list[Any]) -> np.ndarray:
    """Return a metric of all rows and of each sample, `[1 + SAMPLES]`."""
    if name.endswith("_diff"):
        ours, base = (sampled_values(method, each, name[:-5], parts) for each in MODELS)
        return ours - base
    labels, predictions, weights, counts = ([part[key] for part in parts] for key in KEYS)
    y, p, w = (
        np.concatenate([np.ravel(each[model]) for each in column]).astype(np.float64)
        for column in (labels, predictions, weights)
    )
    count = np.concatenate(counts).T.astype(np.float64)
    if method == "JACKKNIFE":
        assert (count.sum(axis=0) == 1).all()
        count = 1 - count
    return np.array([METRICS[name](y, p, w * each) for each in (np.ones(len(y)), *count)])


def interval_of(method: str, samples: np.ndarray) -> tuple[float, float]:
    """Return the center and the standard error, by NumPy."""
    error = np.std(samples, ddof=1)
    if method == "JACKKNIFE":
        # The standard error of the pseudo-values' mean.
        error *= (SAMPLES - 1) / np.sqrt(SAMPLES)
    return float(np.mean(samples)), float(error)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_intervals_are_those_of_the_samples(evaluated, without_intervals) -> None:
    method, found, parts = evaluated
    alone = (("city", "alone"),)
    assert {key for _, key, _ in found} == set(parts)
    assert parts.keys() == {(), alone, *((("city", c),) for c in ("x", "y", "one class"))}
    assert len(parts[()]) == len(BATCHES)
    compared = set()
    t = stats.t.ppf(0.975, SAMPLES - 1)
    for (model, key, name), expected in without_intervals.items():
        value = found[model, key, name]
        bounded = {k: float(v) for k, v in value.get("boundedValue", {}).items()}
        if name in ("rows", "sum_of_weights") or key == alone or "doubleValue" not in expected:
            assert value == expected, (key, name)
            continue
        plain = float(expected["doubleValue"])
        assert bounded["value"] == pytest.approx(plain, rel=1e-12, nan_ok=True), (key, name)
        if name.removesuffix("_diff") in METRICS:
            compared.add(name)
            point, *samples = sampled_values(method, model, name, parts[key])
            center, error = interval_of(method, np.array(samples))
            wanted = [point, center - t * error, center + t * error]
            interval = [bounded[each] for each in ("value", "lowerBound", "upperBound")]
            assert interval == pytest.approx(wanted, rel=1e-6, abs=1e-7, nan_ok=True), (key, name)
    assert compared == {*METRICS, *(f"{name}_diff" for name in METRICS)}
    message = base64.b64decode(found["ours", alone, "__ERROR__"]["bytesValue"])
    assert b"samples were non-empty" in message


def split_computations(config: tfma.EvalConfig) -> tuple[Any, list[Any], list[Any]]:
    """Return a combiner of all metrics, the derived computations, and those from intervals."""
    found: dict[type, list[Any]] = {}
    specs = list(config.metrics_specs)
    for each in dict.fromkeys(metric_specs.to_computations(specs, eval_config=config)):
        found.setdefault(type(each), []).append(each)
    combiners = [each.combiner for each in found[metric_types.MetricComputation]]
    return (
        beam.combiners.SingleInputTupleCombineFn(*combiners),
        found[metric_types.DerivedMetricComputation],
        found.get(metric_types.CIDerivedMetricComputation, []),
    )


def derive(outputs: Any, derived: list[Any]) -> dict[Any, Any]:
    values = {key: value for output in outputs for key, value in output.items()}
    for each in derived:
        values.update(each.result(values))
    return values


def tfma_intervals(method: str, config: tfma.EvalConfig, rows: pd.DataFrame) -> dict[Any, Any]:
    """Return TFMA's intervals from resampled rows."""
    combiner, derived, _ = split_computations(config)
    elements = [
        metric_types.StandardMetricInputs(
            {
                constants.LABELS_KEY: np.array([row.y]),
                constants.PREDICTIONS_KEY: np.array([row.p]),
                constants.EXAMPLE_WEIGHTS_KEY: np.array([row.w]),
            }
        )
        for row in rows.itertuples()
    ]

    def accumulate(fn: beam.CombineFn, elements: Iterable[Any]) -> Any:
        fn.setup()
        accumulator = fn.create_accumulator()
        for element in elements:
            accumulator = fn.add_input(accumulator, element)
        return accumulator

    def combine(fn: beam.CombineFn, elements: Iterable[Any]) -> dict[Any, Any]:
        return derive(fn.extract_output(accumulate(fn, elements)), derived)

    if method == "JACKKNIFE":
        part = np.random.default_rng(0).integers(SAMPLES, size=len(elements))
        parts = [
            pickle.dumps(
                accumulate(
                    combiner,
                    [element for element, i in zip(elements, part, strict=True) if i == number],
                )
            )
            for number in range(SAMPLES)
        ]
        samples = []
        for left_out in range(SAMPLES):
            # Copies, for a merge may change what it merges.
            others = [pickle.loads(each) for i, each in enumerate(parts) if i != left_out]
            merged = combiner.merge_accumulators(others)
            samples.append(derive(combiner.extract_output(merged), derived))
        fn = jackknife._JackknifeSampleCombineFn(SAMPLES)
    else:
        resample = poisson_bootstrap._BootstrapCombineFn
        samples = [combine(resample(combiner, seed), elements) for seed in range(SAMPLES)]
        fn = poisson_bootstrap._BootstrapSampleCombineFn(SAMPLES)
    accumulator = fn.create_accumulator()
    for number, values in enumerate([combine(combiner, elements), *samples], start=-1):
        accumulator = fn.add_input(accumulator, SampleMetrics(values, number))
    return fn.extract_output(accumulator)


def column_intervals(config: tfma.EvalConfig, batches: list[list[np.ndarray]]) -> dict[Any, Any]:
    """Return the intervals by columns from batches of labels, predictions and weights."""
    assert custom_extractors(None, config, None)
    combiner, derived, from_samples = split_computations(config)
    combiner.setup()
    sampling, parts = find_sampling(config), []
    assert sampling is not None
    for batch in batches:
        values = dict(zip(KEYS, (*batch, sampling.count_rows(batch, len(batch[0]))), strict=True))
        inputs = metric_types.StandardMetricInputs(values)
        accumulator = []
        for each in combiner._combiners:
            element = values if isinstance(each, _SampleCombiner) else inputs
            accumulator.append(each.add_input(each.create_accumulator(), element))
        parts.append(pickle.loads(pickle.dumps(combiner.compact(accumulator))))
    values = derive(combiner.extract_output(combiner.merge_accumulators(parts)), derived)
    (to_intervals,) = from_samples
    return to_intervals.result(values)


@pytest.mark.parametrize("method", METHODS)
def test_standard_errors_are_those_of_tfma(method: str) -> None:
    rows = rows_of(3, 120)
    config = config_of(method, FEW_METRICS, ["ours"])
    expected = tfma_intervals(method, config, rows)
    groups = [part for _, part in rows.groupby(np.arange(len(rows)) // 50)]
    found = column_intervals(config, [[g[[name]].to_numpy() for name in "ypw"] for g in groups])
    compared = 0
    for key, value in expected.items():
        if key.name in METRICS:
            compared += 1
            assert float(found[key]) == pytest.approx(float(value), rel=1e-6)
            error = found[key].sample_standard_deviation
            assert 0.5 < error / value.sample_standard_deviation < 2, key
    assert compared == len(FEW_METRICS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["multiclass", "regression"])
def test_metrics_of_other_labels_have_intervals(kind: Any, method: str) -> None:
    names = [name for name, metric in OFFERED.items() if kind in metric.kinds]
    config = EvaluationConfig.model_validate({"metrics": names}).eval_config(
        label="y", kind=kind, weight=None
    )
    set_method(config, method)
    random, batches = np.random.default_rng(0), []
    for rows in (300, 200):
        y, p = random.integers(3, size=[rows, 1]), random.dirichlet([1, 1, 1], rows)
        if kind == "regression":
            y, p = random.normal(2, 1, [rows, 1]), random.normal(2, 2, [rows, 1])
        batches.append([y, p.astype(np.float32), np.ones([rows, 1])])
    found = {key.name: value for key, value in column_intervals(config, batches).items()}
    for name in names:
        assert found[name].sample_standard_deviation > 0, name
        assert found[name].sample_mean == pytest.approx(float(found[name]), rel=0.2), name
    # The standard error of a mean.
    y, p, _ = (np.concatenate(each) for each in zip(*batches, strict=True))
    name, of_rows = ("sparse_categorical_accuracy", p.argmax(axis=1) == y.ravel())
    if kind == "regression":
        name, of_rows = "mean_absolute_error", np.abs(y - p)
    assert float(found[name]) == pytest.approx(of_rows.mean(), rel=1e-6)
    error = of_rows.std() / np.sqrt(len(y))
    assert 0.5 < found[name].sample_standard_deviation / error < 2


def test_samples_depend_on_the_batch_alone() -> None:
    rows = [b"a"] * 4000
    bootstrap, jackknife_ = (Sampling(SAMPLES, is_jackknife=each) for each in (False, True))
    counts = bootstrap.count_rows(rows, len(rows))
    np.testing.assert_array_equal(counts, bootstrap.count_rows(list(rows), len(rows)))
    assert (counts != bootstrap.count_rows([*rows, b"b"], len(rows))).any()
    # Equal rows are sampled independently: mean and variance of Poisson(1).
    assert counts.mean() == pytest.approx(1.0, abs=0.02)
    assert counts.sum(axis=0).var() == pytest.approx(len(rows), rel=1.0)
    assert (jackknife_.count_rows(rows, len(rows)).sum(axis=1) == 1).all()
