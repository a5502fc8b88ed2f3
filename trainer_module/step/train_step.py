"""Take optimizer steps by the update of docs/design.md §4.1 on every replica."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.batch import check_batch, translate_tf_errors
from trainer_module.checks.model import computes_in_float16
from trainer_module.checks.warn_once import log_once, warn_once
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import (
    LossLike,
    PerReplica,
    Tensors,
    present_leaves,
    with_leaves,
)
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.replicas import (
    Share,
    is_distributed,
    local_replicas,
    per_replica,
    replica_index,
    replicas_here,
)
from trainer_module.options.step_options import StepOptions
from trainer_module.step.reports import (
    LoopReport,
    NonFiniteError,
    StepReport,
    empty_report,
    non_finite_error,
)
from trainer_module.step.scaled_learning_rate import follow_steps
from trainer_module.step.setup import StepSetup
from trainer_module.step.state import LossScale, MovingAverage, NoiseAverage, StepCounters
from trainer_module.step.window_loop import StepFunctions, take_windows
from trainer_module.window.accumulation import FullPasses
from trainer_module.window.batch_norm import update_moving_statistics
from trainer_module.window.gradient_sum import (
    GradientSum,
    apply_gradients,
    sum_dtype,
    sum_over_replicas,
)
from trainer_module.window.spec import Batch, StepInputs, unpack_batch, unpack_share
from trainer_module.window.trace import phase_scope
from trainer_module.window.update import Update, mean_gradients, window_update


class TrainStep:
    """Exact optimizer steps over global batches, split over replicas and into micro-batches.

        sum over micro-batches -> sum over replicas -> divide by Σ w, add ∇R -> transforms
            -> finite check -> clip by global norm -> optimizer.apply -> EMA -> step counter

    `_window` is this recipe.

    Example:
        strategy = create_strategy("mirrored")
        with strategy.scope():
            model = build_model()
            optimizer = keras.optimizers.AdamW(1e-3)
        step = TrainStep(model, optimizer, "mse", micro_batch_size=64, strategy=strategy)
        for batch in dataset:            # (features, labels) or (features, labels, weights)
            report = step(batch)
    """

    @naming_replacements(*StepOptions.model_fields)
    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss_fn: LossLike,
        *,
        strategy: tf.distribute.Strategy | None = None,
        **options: Any,
    ) -> None:
        """Check all arguments and create the step's variables.

        Args:
            model: A built Keras model, created in the strategy's scope.
            optimizer: A Keras optimizer, created in the strategy's scope, without the options that
                this class takes over.
            loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`, or a loss that
                `weighted_loss` accepts.
            strategy: A tf.distribute strategy; None: the current one.
            **options: The fields of `StepOptions`: micro_batch_size, clip_norm, clip_per_example,
                ema_momentum, non_finite, max_consecutive_skips, added_losses, transforms,
                jit_compile, gradient_noise_scale, expected_rows, token_features, batch_norm.

        Raises:
            ValueError: An option is out of range, the model overrides `train_step` or
                `compute_loss`, the model or optimizer was created outside the strategy's scope, an
                optimizer option would act per replica or per micro-batch, or the model has a
                BatchNormalization in training mode and `batch_norm` is not set.
        """
        self.strategy = strategy or tf.distribute.get_strategy()
        self._setup = StepSetup(model, optimizer, loss_fn, options, self.strategy)
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = self._setup.loss_fn
        self.options = self._setup.options
        self._variables = self._setup.variables
        momentum, noise_every = self.options.ema_momentum, self.options.gradient_noise_scale
        with self.strategy.scope():
            self._counters = StepCounters()
            self.step = self._counters.step
            self.consecutive_skips = self._counters.consecutive
            self.loss_scale = LossScale() if computes_in_float16(model) else None
            self._average = None if momentum is None else MovingAverage(self._variables, momentum)
            self._noise = None if noise_every is None else NoiseAverage(noise_every)
        follow_steps(optimizer, self.step)
        self._step_functions = StepFunctions(self._window)
        self._distributed_function = tf.function(
            self._window, autograph=False, reduce_retracing=True
        )
        empty = functools.partial(
            empty_report, sum_dtype(model), len(self._variables), local_replicas(self.strategy)
        )
        self._loop_function = tf.function(
            functools.partial(take_windows, self._window, empty),
            autograph=False,
            reduce_retracing=True,
        )

    def __call__(self, batch: Sequence[Tensors]) -> StepReport:
        """Take one optimizer step.

        Args:
            batch: (features, labels) or (features, labels, sample_weight). Either the tensors
                `[rows, ...]` of one global batch, which is split into contiguous parts for the
                replicas, or `tf.distribute.DistributedValues` that are already split. There may be
                any number of rows, including 0.

        Raises:
            NonFiniteError: The window is not finite and is not skipped: `non_finite` is "raise", or
                `max_consecutive_skips` windows in a row were skipped before it. In float16, such
                windows are skipped until the loss scale is 1.
            ValueError: A label or an id is out of the model's range (detected on CPU devices).
        """
        self._setup.check_variables()
        with translate_tf_errors():
            report = self._traced(unpack_batch(batch))
        if bool(report.failed):
            raise self._non_finite_error(report)
        return report

    def run(
        self,
        iterator: Iterator[Tensors],
        num_steps: int,
        *,
        loss_sums: Sequence[float] = (0.0, 0.0),
    ) -> LoopReport:
        """Take up to `num_steps` optimizer steps in one call of the graph.

        Args:
            iterator: An iterator over a tf.data.Dataset of global batches as for `__call__`, the
                same on all workers; or over the `Share` of this worker in each global batch.
            num_steps: Number of windows to take. A different number does not cause another trace.
            loss_sums: The `loss_sums` of previous runs, to which the report adds.

        Raises:
            NonFiniteError: See `__call__`.
            ValueError: See `__call__`.
        """
        self._setup.check_variables()
        started = time.monotonic()
        with translate_tf_errors():
            first = self._read_first(iterator, num_steps)
            last, totals, exhausted = self._loop_function(
                first,
                iterator,
                tf.constant(num_steps, tf.int64),
                tf.constant(loss_sums, tf.float64),
            )
        if self.is_compiled:
            seconds = f"{time.monotonic() - started:.1f} s"
            first_call = f"step: first call of the graph, with compilation by XLA: {seconds}"
            log_once(first_call, about=self.model, topic="first call")
        if bool(last.failed):
            raise self._non_finite_error(last)
        if self._noise is not None and not self._noise.is_known and int(totals.steps):
            warn_once(
                f"gradient_noise_scale={self.options.gradient_noise_scale}: there is no estimate "
                "yet, because it needs at least two micro-batches or replicas per global batch. "
                f"Use a micro_batch_size (now {self.options.micro_batch_size}) of at most half "
                "the rows of a replica.",
                about=self.model,
            )
        return LoopReport(
            steps=int(totals.steps),
            loss=float(totals.loss) / float(totals.weights) if totals.weights else float("nan"),
            loss_sums=(float(totals.loss_sums[0]), float(totals.loss_sums[1])),
            gradient_norm=float(last.gradient_norm),
            rows=int(totals.rows),
            exhausted=bool(exhausted),
            noise_scale=self.noise_scale,
        )

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the windows; known after the first one."""
        return self._setup.is_compiled

    @property
    def skipped(self) -> dict[str, int]:
        """The number of windows that updated nothing, by reason."""
        return self._counters.skipped

    @property
    def noise_scale(self) -> float:
        """The gradient noise scale in rows, averaged over about the last ten measured windows.

        NaN if it is not measured, or not known yet. It needs at least two micro-batches or replicas
        per global batch.
        """
        return float("nan") if self._noise is None else self._noise.noise_scale

    def state(self) -> list[tf.Variable]:
        """Return the step's variables in a fixed order: counters, EMA, loss scale, noise."""
        scale = self.loss_scale
        own = self._counters.state()
        scales = [scale.scale, scale.finite_windows] if scale else []
        noise = [self._noise.values] if self._noise else []
        return own + self.averages + scales + noise

    @property
    def averages(self) -> list[tf.Variable]:
        """The EMA, one tf.Variable per trainable variable; empty without EMA."""
        return [] if self._average is None else self._average.values

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the model has the EMA; without EMA it does nothing."""
        return contextlib.nullcontext() if self._average is None else self._average.in_use()

    def use_averages(self) -> None:
        """Assign the EMA to the model's variables; do nothing without EMA."""
        if self._average is not None:
            self._average.use()

    def _non_finite_error(self, report: StepReport) -> NonFiniteError:
        skipped = int(self._counters.consecutive.numpy())
        step = int(self.step.numpy())
        # All workers reach this line, because they see the same reduced sums.
        finite = report.finite_by_replica.numpy().all(axis=1)
        here = np.flatnonzero(~finite) + replicas_here(self.strategy).first
        everywhere = worker_group(self.strategy).gather("a window not finite", here.tolist())
        several = self.strategy.num_replicas_in_sync > 1
        replicas = sorted(itertools.chain.from_iterable(everywhere)) if several else []
        return non_finite_error(report, self._variables, step, replicas=replicas, skipped=skipped)

    def _traced(self, batch: Batch) -> StepReport:
        """Run one window; a different number of rows does not cause another trace."""
        if is_distributed(batch):
            rows = [tf.concat(self._results(value), 0) for value in present_leaves(batch)]
            self._setup.check_rows(with_leaves(batch, rows))
            return self._distributed_function(batch)
        check_batch(*batch)
        self._setup.check_rows(batch)
        return self._step_functions(batch)

    def _read_first(self, iterator: Any, num_steps: int) -> tf.experimental.Optional:
        """Return the first batch, if its rows must be checked first."""
        specs = iterator.element_spec
        if self._setup.rows_checked or num_steps < 1:
            return tf.experimental.Optional.empty(specs)
        first = iterator.get_next_as_optional()
        if first.has_value():
            # The spec of a leaf that is None is an object without a shape.
            shapes = tf.nest.map_structure(lambda s: s if hasattr(s, "shape") else None, specs)
            found = (unpack_share(first.get_value()), unpack_share(shapes))
            self._setup.check_rows(*(x.batch if isinstance(x, Share) else x for x in found))
        return first

    def _window(self, batch: Tensors) -> StepReport:
        """Take one optimizer step in cross-replica context: from a global batch to the variables.

        With XLA, this is one computation on a single replica. With several, the sums of each are
        one, and their division, the transforms, the check and the clipping are another. On a CPU
        with recurrent layers the sums are two, which run in parallel.
        """
        strategy, several = self.strategy, self.strategy.num_replicas_in_sync > 1
        rows = per_replica(batch, strategy)
        passes = self._setup.passes(Batch(*_first_replica(strategy, rows)))
        with strategy.scope():
            step = self.step.read_value()
            scale = None if self.loss_scale is None else self.loss_scale.scale.read_value()

        def inputs() -> StepInputs:
            measures_noise = None if self._noise is None else self._noise.is_due(step)
            return StepInputs((step, replica_index()), scale, measures_noise=measures_noise)

        def update_of(total: GradientSum, local: GradientSum) -> Update:
            mean = mean_gradients(total, self.model, loss_scale=scale)  # divides by Σ w, adds ∇R
            return window_update(mean, total, local, self.model, self.options, inputs())

        def on_replica(rows: Batch | FullPasses | GradientSum) -> Update:
            local = passes.sum(rows, inputs())
            with phase_scope("reduction"):
                total = sum_over_replicas(local)
            with phase_scope("update"):
                return (passes.compiled(update_of) if several else update_of)(total, local)

        def take(rows: Tensors) -> StepReport:
            update = strategy.run(on_replica, args=(rows,))
            with phase_scope("update"):
                report = self._report(update, scale)
                # tf.cond is outside strategy.run, so that Keras can merge replicas inside it. All
                # replicas and workers see the same reduced sums, so they take the same branch.
                apply = functools.partial(self._apply, update)
                tf.cond(report.applied, apply, lambda: tf.constant(0))
                self._count(report, _first_replica(strategy, update), scale)
            return report

        with strategy.scope():
            rows = strategy.run(lambda rows: passes.split(Batch(*rows), inputs()), args=(rows,))
            if passes.description.is_compiled and passes.parallel > 1:  # before the update
                rows = strategy.run(lambda rows: passes.sum(rows, inputs()), args=(rows,))
            return take(rows) if several else passes.compiled(take)(rows)

    def _results(self, values: PerReplica) -> Sequence[tf.Tensor]:
        return self.strategy.experimental_local_results(values)

    def _report(self, updates: Update, scale: tf.Tensor | None) -> StepReport:
        """Return the report of an update: whether it is applied, or fails the run."""
        update = _first_replica(self.strategy, updates)
        failed = update.is_rejected
        if self.options.non_finite == "skip":
            skips = self._counters.consecutive.read_value()
            failed = tf.logical_and(failed, skips >= self.options.max_consecutive_skips)
        if scale is not None:
            # float16 overflows by design until the scale fits. At 1 the scale cannot be lowered.
            failed = tf.logical_and(failed, scale <= 1.0)
        return StepReport(
            loss=update.loss,
            gradient_norm=update.gradient_norm,
            weight_sum=update.weight_sum,
            rows=update.rows,
            applied=update.is_applied,
            failed=failed,
            finite=update.finite,
            finite_by_replica=tf.stack(self._results(updates.finite_here)),
        )

    def _count(self, report: StepReport, update: Update, scale: tf.Tensor | None) -> None:
        """Update what the step keeps from window to window, other than the moving average."""
        skips_non_finite = self.options.non_finite == "skip"
        self._counters.count(report, update, scale=scale, skips_non_finite=skips_non_finite)
        if self.loss_scale is not None:
            self.loss_scale.update(update.is_finite)
        if self._noise is not None and update.noise is not None:
            self._noise.update(update.noise)

    def _apply(self, updates: Update) -> tf.Tensor:
        self.strategy.run(
            lambda g: apply_gradients(self.optimizer, g, self._variables), args=(updates.gradients,)
        )
        statistics = _first_replica(self.strategy, updates.statistics)
        update_moving_statistics(self.model, statistics)
        if self._average is not None:
            self._average.update(self.strategy)
        return tf.constant(0)


def _first_replica(strategy: tf.distribute.Strategy, values: Tensors) -> Tensors:
    return with_leaves(
        values, [strategy.experimental_local_results(v)[0] for v in present_leaves(values)]
    )


class SavedState:
    """The values of model, optimizer and step at construction, in host memory."""

    def __init__(self, step: TrainStep) -> None:
        """Copy the values."""
        self._strategy = step.strategy
        kept = [*step.model.variables, *step.optimizer.variables, *step.state()]
        kept.append(step.consecutive_skips)
        self._variables = [v.value if isinstance(v, keras.Variable) else v for v in kept]
        self._values = [v.numpy() for v in self._variables]

    def restore(self) -> None:
        """Assign the values, bit for bit."""
        with self._strategy.scope():
            for variable, value in zip(self._variables, self._values, strict=True):
                variable.assign(value)
