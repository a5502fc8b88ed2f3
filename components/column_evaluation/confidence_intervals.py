"""Confidence intervals of TFMA from resampled batches.

TFMA resamples its elements, which are rows by rows and batches by columns. `ConfidenceIntervals` is
a metric that resamples the rows of batches: it holds the accumulators of all metrics once per
sample, and TFMA's own code makes an interval of the samples' values.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.evaluators import (
    confidence_intervals_util,
    jackknife,
    poisson_bootstrap,
)
from tensorflow_model_analysis.evaluators import (
    metrics_plots_and_validations_evaluator as evaluator,
)
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.utils import model_util

from components.column_evaluation.read_batch import select_rows

COUNTS_KEY = "sample_counts"
"""Key in the Extracts of a batch: `[rows, samples]`, how often each sample has each row."""

_SAMPLES = metric_types.MetricKey(name="_confidence_interval_samples")
_JACKKNIFE = config_pb2.ConfidenceIntervalOptions.JACKKNIFE


class ConfidenceIntervals(metric_types.Metric):
    """Replace the values of the other metrics by values with a t-distribution."""

    def __init__(self, name: str = "confidence_intervals"):
        super().__init__(self.computations, name=name)

    def computations(
        self, eval_config: tfma.EvalConfig | None = None, **_: Any
    ) -> metric_types.MetricComputations:
        """Return the computation of all samples, and the one that replaces values."""
        assert eval_config is not None
        sampling, skipped = _sampling(eval_config), _params(eval_config).skip_ci_metric_keys
        combine = (
            jackknife._JackknifeSampleCombineFn
            if sampling.is_jackknife
            else poisson_bootstrap._BootstrapSampleCombineFn
        )
        computations = dict.fromkeys(
            metric_specs.to_computations(other_specs(eval_config), eval_config=eval_config)
        )
        baseline = model_util.get_baseline_model_spec(eval_config)
        combiner = _SampleCombiner(
            [
                each.combiner
                for each in computations
                if type(each) is metric_types.MetricComputation
            ],
            [each for each in computations if type(each) is metric_types.DerivedMetricComputation],
            baseline_model=baseline.name if baseline else None,
            sampling=sampling,
        )
        return [
            metric_types.MetricComputation(
                keys=[_SAMPLES], preprocessors=[_WholeExtracts()], combiner=combiner
            ),
            metric_types.CIDerivedMetricComputation(
                keys=[_SAMPLES], result=_ToIntervals(combine(sampling.samples, skipped))
            ),
        ]


def add_confidence_intervals(eval_config: tfma.EvalConfig) -> None:
    """Make an evaluation that asks for confidence intervals compute them by columns, in place.

    `compute_confidence_intervals` is cleared, or TFMA would resample batches.
    """
    options = eval_config.options
    if not options.compute_confidence_intervals.value:
        return
    options.compute_confidence_intervals.value = False
    if not options.confidence_intervals.method:
        options.confidence_intervals.method = _JACKKNIFE  # TFMA's default
    metric = tfma.MetricConfig(class_name=ConfidenceIntervals.__name__, module=__name__)
    # Before metrics that TFMA derives from intervals.
    eval_config.metrics_specs.insert(0, tfma.MetricsSpec(metrics=[metric]))


class Sampling(NamedTuple):
    """How the rows of a batch are sampled.

    The random numbers depend on the content of the batch alone: all slices and models have the same
    samples, and so has the same evaluation on other workers, as long as its batches are the same.

    Attributes:
        samples: Number of samples.
        is_jackknife: Whether by the jackknife, or by the Poisson bootstrap.
    """

    samples: int
    is_jackknife: bool

    def count_rows(self, content: Any, rows: int) -> np.ndarray:
        """Return how often each sample has each row of a batch.

        Args:
            content: Anything that only this batch has.
            rows: Number of rows.

        Returns:
            uint8 `[rows, samples]`. By the Poisson bootstrap each number is drawn from Poisson(1).
            By the jackknife each row is in one of the "samples", which are then left out in turn.
        """
        seed = hashlib.blake2b(pickle.dumps(content), digest_size=16).digest()
        random = np.random.default_rng(int.from_bytes(seed, "little"))
        if not self.is_jackknife:
            return random.poisson(1.0, [rows, self.samples]).astype(np.uint8)
        part = random.integers(self.samples, size=[rows, 1])
        return (part == np.arange(self.samples)).astype(np.uint8)


def find_sampling(eval_config: tfma.EvalConfig) -> Sampling | None:
    """Return how an evaluation by columns samples rows, or None without confidence intervals."""
    specs = other_specs(eval_config)
    return _sampling(eval_config) if len(specs) < len(eval_config.metrics_specs) else None


def other_specs(eval_config: tfma.EvalConfig) -> list[config_pb2.MetricsSpec]:
    """Return the specifications of an evaluation without that of the confidence intervals."""
    return [
        spec
        for spec in eval_config.metrics_specs
        if all(metric.module != __name__ for metric in spec.metrics)
    ]


def _sampling(eval_config: tfma.EvalConfig) -> Sampling:
    params = _params(eval_config)
    samples = params.num_jackknife_samples or params.num_bootstrap_samples
    return Sampling(samples, is_jackknife=params.num_jackknife_samples > 0)


def _params(eval_config: tfma.EvalConfig) -> Any:
    """Return TFMA's numbers of samples, and the keys that get no interval."""
    config = tfma.EvalConfig.FromString(eval_config.SerializeToString())
    config.options.compute_confidence_intervals.value = True
    return evaluator._get_confidence_interval_params(config, other_specs(eval_config))


class _WholeExtracts(metric_types.Preprocessor):
    """Pass the Extracts of a batch to a combiner, with the counts of samples."""

    def process(self, extracts: Any) -> Iterator[Any]:
        yield extracts


class _Samples(NamedTuple):
    """The accumulator of all samples.

    Attributes:
        rows: Number of rows of each sample, int64 `[samples]`.
        parts: The metrics' accumulators of each sample.
    """

    rows: np.ndarray
    parts: list[Any]


class _SampleCombiner(beam.CombineFn):
    """Combine batches into the values of all metrics in each sample."""

    def __init__(
        self,
        combiners: list[beam.CombineFn],
        derived: list[metric_types.DerivedMetricComputation],
        *,
        baseline_model: str | None,
        sampling: Sampling,
    ):
        """Combine the metrics of each sample.

        Args:
            combiners: The combiners of the metrics.
            derived: Computations from their results, in TFMA's order.
            baseline_model: Name of the baseline model, or None.
            sampling: How `element[COUNTS_KEY]` was drawn.
        """
        self._metrics = beam.combiners.SingleInputTupleCombineFn(*combiners)
        self._derived = derived
        self._baseline_model = baseline_model
        self._sampling = sampling

    def setup(self, *args: Any, **kwargs: Any) -> None:
        self._metrics.setup(*args, **kwargs)

    def create_accumulator(self) -> _Samples:
        parts = [self._metrics.create_accumulator() for _ in range(self._sampling.samples)]
        return _Samples(np.zeros(self._sampling.samples, np.int64), parts)

    def add_input(self, accumulator: _Samples, element: Any) -> _Samples:
        counts = element[COUNTS_KEY]
        parts = []
        for part, count in zip(accumulator.parts, counts.T, strict=True):
            at = np.repeat(np.arange(len(count)), count)
            values = {name: select_rows(element[name], at) for name in _INPUTS}
            inputs = metric_types.StandardMetricInputs(values)
            parts.append(self._metrics.add_input(part, inputs) if at.size else part)
        return _Samples(accumulator.rows + counts.sum(axis=0, dtype=np.int64), parts)

    def merge_accumulators(self, accumulators: Iterable[_Samples]) -> _Samples:
        rows, parts = zip(*accumulators, strict=True)
        merged = [self._metrics.merge_accumulators(each) for each in zip(*parts, strict=True)]
        return _Samples(np.sum(rows, axis=0), merged)

    def compact(self, accumulator: _Samples) -> _Samples:
        return _Samples(
            accumulator.rows, [self._metrics.compact(each) for each in accumulator.parts]
        )

    def extract_output(self, accumulator: _Samples) -> dict[Any, list[metric_types.MetricsDict]]:
        """Return the metrics of each sample that has rows."""
        rows, parts = accumulator
        if self._sampling.is_jackknife:
            rows = rows.sum() - rows
            parts = [self._merge_others(parts, i) for i in range(self._sampling.samples)]
        return {_SAMPLES: [self._values(part) for part, n in zip(parts, rows, strict=True) if n]}

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        self._metrics.teardown(*args, **kwargs)

    def _merge_others(self, parts: list[Any], left_out: int) -> Any:
        # A combiner may change the first accumulator that it merges.
        others = [part for i, part in enumerate(parts) if i != left_out]
        return self._metrics.merge_accumulators([self._metrics.create_accumulator(), *others])

    def _values(self, part: Any) -> metric_types.MetricsDict:
        """Return the metrics of a sample, with derived ones and differences as TFMA adds them."""
        found: metric_types.MetricsDict = {}
        for output in self._metrics.extract_output(part):
            found.update(output)
        for computation in self._derived:
            found.update(computation.result(found))
        found = {key: value for key, value in found.items() if not key.name.startswith("_")}
        for key, value in list(found.items()) if self._baseline_model else []:
            other = found.get(key.make_baseline_key(self._baseline_model))
            is_compared = key.model_name != self._baseline_model and not key.is_diff
            if is_compared and other is not None and _is_number(value):
                found[key.make_diff_key()] = value - other
        return found


_INPUTS = (constants.LABELS_KEY, constants.PREDICTIONS_KEY, constants.EXAMPLE_WEIGHTS_KEY)
_is_number = evaluator._is_metric_diffable


class _ToIntervals:
    """Make values with a t-distribution of the values of all rows and of the samples."""

    def __init__(self, combiner: confidence_intervals_util.SampleCombineFn):
        self._combiner = combiner

    def __call__(self, metrics: metric_types.MetricsDict) -> metric_types.MetricsDict:
        of_all_rows = {key: value for key, value in metrics.items() if key != _SAMPLES}
        samples = [(self._combiner._full_sample_id, of_all_rows), *enumerate(metrics[_SAMPLES])]
        accumulator = self._combiner.create_accumulator()
        for number, values in samples:
            sample = confidence_intervals_util.SampleMetrics(values, number)
            accumulator = self._combiner.add_input(accumulator, sample)
        return self._combiner.extract_output(accumulator)
