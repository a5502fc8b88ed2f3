"""Compute loss and metrics over a whole split, exactly, with ragged batches and weights."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.checks.batch import translate_tf_errors
from trainer_module.checks.model import warn_overrides_ignored
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.keras_names import check_keras_name
from trainer_module.common.tensors import Batch, Json, LossLike, Tensors
from trainer_module.data.epoch_data import BatchSource
from trainer_module.data.in_memory import array_batches
from trainer_module.devices.replicas import Share, is_multi_worker, per_replica
from trainer_module.losses.loss_values import zero_where_unweighted
from trainer_module.losses.weighted_loss import (
    Path,
    WeightedLoss,
    as_loss_function,
    leaves,
    loss_sums,
    only,
    part_at,
    path_name,
)
from trainer_module.model.metrics import check_labels, defined_result, values_by_name
from trainer_module.window.spec import unpack_batch

# A metric, its name or a function; lists of these, and dicts or lists nested like the outputs.
_Metrics: TypeAlias = Any
_ARRAY_ROWS = 256  # of a batch of arrays: no number changes the result


Evaluate = Callable[[], dict[str, float]]


class Evaluation:
    """Call the model once on every row and return `{"loss": ..., metric: ...}`.

    The loss is Σ w_i l_i / Σ w_i over the split, without regularisation. For several outputs it is
    the sum of their losses.
    """

    @naming_replacements()
    def __init__(
        self,
        model: keras.Model,
        loss_fn: LossLike,
        batches: BatchSource,
        *,
        metrics: _Metrics = (),
        strategy: tf.distribute.Strategy | None = None,
        data_facts: Mapping[str, Json] | None = None,
    ) -> None:
        """Check the metrics and create the variables.

        Args:
            model: The model, created in the strategy's scope.
            loss_fn: As in `TrainStep`.
            batches: A tf.data.Dataset of (features, labels) or (features, labels, weights); ragged
                batches are allowed. Or the rows: such a tuple of arrays, or of dicts of arrays.
                With several workers, the same on each, or the `Share` of each batch that is for
                this worker.
            metrics: As in `compile` of Keras: names, `keras.metrics.Metric` objects, created in the
                strategy's scope, and functions `(labels, outputs) -> values`, in a list. For a
                model with several outputs, a dict or list of these lists, nested like the losses;
                such a metric is named `{output}_{name}`. The variables of a metric must be sums
                over rows, as in Keras' metrics, and `result` must work in a graph, as in Keras'
                `fit`. Rows of weight 0 may have any label.
            strategy: Default: the current strategy.
            data_facts: Names and JSON values that identify the rows, for checkpoints. Default: the
                steps, arrays and files of the dataset.

        Raises:
            ValueError: Two metrics have the same name, there is no such metric or output, or an
                argument has another type.
        """
        self.model = model
        loss = as_loss_function(loss_fn)
        # As in Keras, class_weight applies to training only.
        is_ours = isinstance(loss, WeightedLoss)
        self.loss_fn = dataclasses.replace(loss, class_weight=None) if is_ours else loss
        warn_overrides_ignored(model, ("test_step", "compute_loss"), by="Evaluation")
        self.batches = _as_dataset(batches)
        self.data_facts = data_facts
        self.strategy = strategy or tf.distribute.get_strategy()
        with self.strategy.scope():
            self._metric_of = _metrics_by_name(
                metrics,
                list(leaves(loss.loss)) if isinstance(loss, WeightedLoss) else [],
                getattr(model, "output_names", None) or (),
            )
        self.metrics = [metric for _, metric in self._metric_of.values()]
        self.names = ["loss", *self._metric_of]
        self._total: tf.Variable | None = None
        self._results_of = tf.function(self._results, autograph=False, reduce_retracing=True)

    def __call__(self) -> dict[str, float]:
        """Return the split's loss and metrics; NaN if its rows do not define a metric.

        Raises:
            ValueError: The split has no row, its weights sum to 0, a metric cannot use its labels,
                a metric cannot run in a graph, or a label is a class or an id that the model does
                not have.
        """
        with translate_tf_errors():
            if is_multi_worker(self.strategy) and self._total is None:
                self._make_variables()
            *sums, results = self._results_of(iter(self.batches))
        numerator, denominator = (tensor.numpy() for tensor in sums)
        if not np.any(denominator):
            raise ValueError(
                "the eval split has no rows, or weights that are all 0: check the split's size."
            )
        counted = denominator != 0  # an output without weighted rows adds nothing
        values = {"loss": float(np.sum(numerator[counted] / denominator[counted]))}
        for name, result in zip(self._metric_of, results, strict=True):
            values.update(values_by_name(name, result))
        return values

    def _make_variables(self) -> None:
        """Run one batch, so that metrics create their variables outside of a graph.

        Some metrics create variables at their first update. A prepared graph would miss them. With
        several workers a graph cannot create them, because collectives send their initial values
        from the chief. Also create a variable for the loss sums, so that they are reduced once and
        not per batch.
        """
        zeros = tf.zeros([2, 1], tf.float64)
        with self.strategy.scope():
            for batch in self.batches.take(1):
                parts = per_replica(batch, self.strategy)
                sums = self.strategy.run(self._on_replica, args=(parts,))
                zeros = tf.zeros_like(self.strategy.experimental_local_results(sums)[0])
            self._total = tf.Variable(
                zeros,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    def _results(self, iterator: tf.data.Iterator) -> tuple[tf.Tensor, tf.Tensor, list[Tensors]]:
        """Reset, update and read the metrics in one graph, which is faster than one call each."""
        with self.strategy.scope():
            for metric in self.metrics:
                metric.reset_state()
            if self._total is not None:
                self._total.assign(tf.zeros(self._total.shape, tf.float64))
        sums = self._sums(iterator)
        with self.strategy.scope():
            if self._total is not None:
                sums = self._total.read_value()
            return sums[0], sums[1], [_result(metric) for metric in self.metrics]

    def _sums(self, iterator: tf.data.Iterator) -> tf.Tensor:
        def body(
            element: tf.experimental.Optional, sums: tf.Tensor
        ) -> tuple[tf.experimental.Optional, tf.Tensor]:
            sums += self._batch(element.get_value())
            return iterator.get_next_as_optional(), sums

        _, sums = tf.while_loop(
            lambda element, _: element.has_value(),
            body,
            (iterator.get_next_as_optional(), tf.zeros([2, 1], tf.float64)),
            shape_invariants=(None, tf.TensorShape([2, None])),
            parallel_iterations=1,
        )
        return sums

    def _batch(self, batch: Batch) -> tf.Tensor:
        """Return numerator and denominator `[2, outputs]` of all replicas, float64.

        With several workers, add them to each replica's variable and return zeros.
        """
        with self.strategy.scope():
            parts = per_replica(batch, self.strategy)
            if (total := self._total) is not None:
                self.strategy.run(lambda b: total.assign_add(self._on_replica(b)), args=(parts,))
                return tf.zeros([2, 1], tf.float64)
            sums = self.strategy.run(self._on_replica, args=(parts,))
            return self.strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)

    def _on_replica(self, batch: Batch) -> tf.Tensor:
        features, labels, weight = unpack_batch(batch)
        outputs = self.model(features, training=False)
        numerator, denominator = loss_sums(self.loss_fn, labels, outputs, weight)
        for path, metric in self._metric_of.values():
            self._update(metric, labels, outputs, weight, path)
        # [1], or one value per output if the outputs count different rows.
        return tf.stack(
            [tf.reshape(tf.cast(x, tf.float64), [-1]) for x in (numerator, denominator)]
        )

    def _update(
        self,
        metric: keras.metrics.Metric,
        labels: Tensors,
        outputs: Tensors,
        weight: Tensors,
        path: Path,
    ) -> None:
        labels, outputs, weight = (
            only(x) if not path else part_at(x, path, what, of="a metric")
            for what, x in (
                ("labels", labels),
                ("the model's outputs", outputs),
                ("sample_weight", weight),
            )
        )
        labels = zero_where_unweighted(labels, weight)
        check_labels(metric, labels, outputs, weight)
        metric.update_state(labels, outputs, sample_weight=weight)


def _as_dataset(data: BatchSource) -> tf.data.Dataset:
    """Return the batches of an evaluation as a dataset."""
    if hasattr(data, "element_spec"):  # a dataset, distributed or not
        if not isinstance(data.element_spec, Share):
            unpack_batch(data.element_spec)
        return data
    if not isinstance(data, tuple) or len(data) not in (2, 3):
        raise ValueError(
            f"Evaluation: the data is a {type(data).__name__}: give a tf.data.Dataset of batches, "
            "or a tuple of arrays, (features, labels) or (features, labels, weights)."
        )
    try:
        return array_batches(data, _ARRAY_ROWS, shuffle=False)(0)
    except ValueError as error:
        message = str(error).replace("the training data", "the data of the evaluation")
        raise ValueError(message) from None


def _result(metric: keras.metrics.Metric) -> Tensors:
    try:
        return defined_result(metric)
    except (AttributeError, NotImplementedError, TypeError) as error:
        raise ValueError(
            f"metric {metric.name!r}: result() fails in a graph ({error}): compute it with "
            "keras.ops or TensorFlow, not with NumPy or .numpy()."
        ) from error


class _OutputMetric(NamedTuple):
    """A metric, and the path of the output that it measures; () for the only output."""

    path: Path
    metric: keras.metrics.Metric


def _metrics_by_name(
    metrics: _Metrics, outputs: Sequence[Path], output_names: Sequence[str] = ()
) -> dict[str, _OutputMetric]:
    """Return the metrics by the name of their result; call it in the strategy's scope."""

    def walk(given: _Metrics, path: Path) -> Iterator[_OutputMetric]:
        below = [output for output in outputs if output[: len(path)] == path != output]
        if isinstance(given, Mapping):
            for key, part in given.items():
                # The loss of a single output has no name for it.
                alone = not path and path in outputs and key in output_names
                yield from walk(part, path if alone else (*path, output_key(path, key, below)))
        elif given is not None and not isinstance(given, (list, tuple)):
            yield from walk([given], path)
        elif given and _is_per_output(given, below, is_output=path in outputs):
            for place, part in enumerate(given):
                yield from walk(part, path if path in outputs else (*path, place))
        else:
            yield from (_OutputMetric(path, _as_metric(each)) for each in given or ())

    def output_key(path: Path, key: str | int, below: list[Path]) -> str | int:
        keys = [output[len(path)] for output in below]
        if key in output_names and keys and all(isinstance(each, int) for each in keys):
            key = list(output_names).index(str(key))
        if key not in keys and (keys or (path and path in outputs)):
            suggestion = nearest(str(key), map(str, keys or [path_name(path)]))
            raise ValueError(f"metrics: there is no loss of an output {key!r}; {suggestion}")
        return key

    found = list(walk(metrics, ()))
    names = [f"{path_name(path)}_{metric.name}" if path else metric.name for path, metric in found]
    if len({"loss", *names}) <= len(names):
        raise ValueError(f"metrics: the names loss, {', '.join(names)} repeat; give each its own.")
    return dict(zip(names, found, strict=True))


def _is_per_output(given: Sequence[Any], below: list[Path], *, is_output: bool) -> bool:
    """Return whether a list has an entry for each output, and not the metrics of one."""
    nested = any(isinstance(each, (list, tuple, Mapping)) for each in given)
    if len(below) < 2:
        if nested and len(given) > 1 and is_output:
            raise ValueError(f"metrics: the lists {[*given]!r} are of one output: give one list.")
        return nested
    if not nested and all(map(_measures_all, given)):
        return False
    keys = {output[0] for output in below}
    if not all(isinstance(key, int) for key in keys):
        raise ValueError(
            f"metrics={[*given]!r} for the outputs {', '.join(map(path_name, below))}: give a dict "
            "from the output to its metrics."
        )
    if len(given) != len(keys):
        raise ValueError(
            f"metrics has {len(given)} entries for {len(keys)} outputs: give one for each, which "
            "may be a list or None."
        )
    return True


def _measures_all(metric: object) -> bool:
    """Return whether it is a metric of the user's own, which may take all outputs together."""
    is_own = not type(metric).__module__.startswith("keras.")
    return isinstance(metric, keras.metrics.Metric) and is_own


def _as_metric(given: Any) -> keras.metrics.Metric:
    """Return the metric of a name, class or function, named as in Keras."""
    if isinstance(given, keras.metrics.Metric):
        return given
    name = given if isinstance(given, str) else None
    if name and name.lower() in ("accuracy", "acc"):
        return keras.metrics.MeanMetricWrapper(_accuracy, name=name)
    if name:
        check_keras_name("metric", name, field="metrics")
    # Losses reduce over the rows; metrics of tf.keras belong to another library.
    is_class = inspect.isclass(given)
    is_other = isinstance(given, keras.losses.Loss) or hasattr(given, "update_state")
    is_metric = is_class and issubclass(given, keras.metrics.Metric)
    if not (name or is_metric or (callable(given) and not is_class and not is_other)):
        raise ValueError(
            f"metrics: {given!r} is a {type(given).__module__}.{type(given).__name__}: give the "
            "name of a Keras metric, a keras.metrics.Metric or a function (labels, outputs) -> "
            "values, in lists, for several outputs in a dict or list of them."
        )
    try:
        found = keras.metrics.get(given)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"metrics={given!r} cannot be made by its name ({error}): give the object, such as "
            "keras.metrics.TopKCategoricalAccuracy(k=3)."
        ) from error
    if not isinstance(found, keras.metrics.Metric):
        name = name or getattr(found, "__name__", type(found).__name__)
        return keras.metrics.MeanMetricWrapper(found, name=name)
    found.name = name or found.name
    return found


def _accuracy(labels: Tensors, outputs: Tensors) -> Tensors:
    """Return the accuracy that fits the shapes, as Keras chooses it for "accuracy"."""
    if outputs.shape[-1] == 1:
        return keras.metrics.binary_accuracy(labels, outputs)
    if len(labels.shape) < len(outputs.shape) or labels.shape[-1] == 1:
        return keras.metrics.sparse_categorical_accuracy(labels, outputs)
    return keras.metrics.categorical_accuracy(labels, outputs)
