"""One optimizer step: the update of docs/design.md §4.1, in its order, on every replica."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from trainer_module.common.positive_int import check_positive_int
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.strategies import local_replicas
from trainer_module.stages.placement import update_beside_variables
from trainer_module.stages.staged_model import stages_of
from trainer_module.step.graph_errors import told_plainly
from trainer_module.step.loss_scale import LossScale
from trainer_module.step.moving_average import MovingAverage
from trainer_module.step.refusals import check_model, check_optimizer, check_options
from trainer_module.step.reports import (
    LoopReport,
    NonFiniteError,
    StepReport,
    culprits_here,
    non_finite_error,
)
from trainer_module.step.split import Share, per_replica
from trainer_module.step.step_functions import StepFunctions
from trainer_module.window.accumulation import accumulate_gradients
from trainer_module.window.batch_checks import check_batch
from trainer_module.window.describe import Description, describe, describe_shapes
from trainer_module.window.gradient_sum import AddedLosses, default_added_losses, sum_dtype
from trainer_module.window.logits import tell_of_logits
from trainer_module.window.loss import WeightedLoss, as_loss_function
from trainer_module.window.micro_batch import computes_in_float16
from trainer_module.window.own_steps import refuse_own_steps, tell_what_compile_said
from trainer_module.window.reduction import apply_gradients
from trainer_module.window.several_optimizers import each_optimizer
from trainer_module.window.update import Update, window_update

NonFinite = Literal["raise", "skip"]
MAX_CONSECUTIVE_SKIPS = 100


class TrainStep:
    """Steps over global batches, each cut into replicas and micro-batches, each exact.

        reduce over replicas -> unscale -> divide and add ∇R -> finite check
            -> clip by global norm -> optimizer.apply -> EMA -> step counter

    Example:
        strategy = create_strategy("mirrored")
        with strategy.scope():
            model = build_model()
            optimizer = keras.optimizers.AdamW(1e-3)
        step = TrainStep(model, optimizer, "mse", micro_batch_size=64, strategy=strategy)
        for batch in dataset:            # (features, labels) or (features, labels, weights)
            report = step(batch)
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss_fn: Any,
        *,
        micro_batch_size: int,
        strategy: tf.distribute.Strategy | None = None,
        clip_norm: float | None = None,
        ema_momentum: float | None = None,
        non_finite: NonFinite = "raise",
        max_consecutive_skips: int = MAX_CONSECUTIVE_SKIPS,
        added_losses: AddedLosses | None = None,
        jit_compile: bool = False,
        expected_rows: int | None = None,
    ) -> None:
        """Checks every option and creates the step's own variables.

        Args:
            model: A built Keras model, created in the strategy's scope.
            optimizer: A Keras optimizer, created there too, with none of the options that this
                class takes over.
            loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`, or what
                `weighted_loss` takes.
            micro_batch_size: Rows of one micro-batch on one replica.
            strategy: A tf.distribute strategy; None is the current one.
            clip_norm: Largest global norm of g, that of all replicas and micro-batches together.
            ema_momentum: Keeps ema = m * ema + (1 - m) * variable after each update (see
                `averaged`).
            non_finite: "raise" stops at a window that is not finite, "skip" counts it.
            max_consecutive_skips: With "skip", how many windows in a row; the next one stops.
            added_losses: See `accumulate_gradients`.
            jit_compile: Compile micro-batches by XLA.
            expected_rows: Rows of most global batches, where the dataset's shapes do not say it (as
                without drop_remainder): small steps take less time. Batches of any other number of
                rows are right too.

        Raises:
            ValueError: An option out of its range, a model with a `train_step` or `compute_loss` of
                its own, a model or optimizer outside the strategy's scope, an optimizer option that
                would act per replica or per micro-batch, or BatchNormalization in training mode.
        """
        self.strategy = strategy or tf.distribute.get_strategy()
        self.model = model
        self.optimizer = optimizer
        check_options(
            micro_batch_size, clip_norm, ema_momentum, non_finite, added_losses, expected_rows
        )
        check_model(model, self.strategy)
        check_optimizer(optimizer, self.strategy)
        refuse_own_steps(model, ("compute_loss", "train_step"), by="TrainStep")
        tell_what_compile_said(model, loss_fn)
        self.loss_fn = as_loss_function(loss_fn)
        tell_of_logits(model, self.loss_fn)
        self.micro_batch_size = int(micro_batch_size)
        self.clip_norm = clip_norm
        self.non_finite = non_finite
        self.max_consecutive_skips = check_positive_int(
            "max_consecutive_skips", max_consecutive_skips
        )
        self.added_losses: AddedLosses = added_losses or default_added_losses(model)
        self.jit_compile = jit_compile
        self._expected_rows = expected_rows and math.ceil(
            expected_rows / self.strategy.num_replicas_in_sync
        )
        self._variables = list(model.trainable_variables)
        self._description: Description | None = None
        self._described_shapes = ""
        with self.strategy.scope():
            if not optimizer.built:
                optimizer.build(self._variables)
                check_optimizer(optimizer, self.strategy)  # a MultiOptimizer has all of its own now
            if stages_of(model) > 1 and self.strategy.num_replicas_in_sync == 1:
                for one in each_optimizer(optimizer):
                    update_beside_variables(one)
            self.step = _counter("step")
            self.skipped_empty = _counter("skipped_empty")
            self.skipped_non_finite = _counter("skipped_non_finite")
            self.skipped_loss_scale = _counter("skipped_loss_scale")
            self._consecutive_skips = _counter("consecutive_skips")
            self.loss_scale = LossScale() if computes_in_float16(model) else None
            self._average = (
                None if ema_momentum is None else MovingAverage(self._variables, ema_momentum)
            )
        self._step_functions = StepFunctions(self._window)
        self._distributed_function = tf.function(
            self._window, autograph=False, reduce_retracing=True
        )
        self._loop_function = tf.function(self._windows, autograph=False, reduce_retracing=True)

    def __call__(self, batch: Sequence[Any]) -> StepReport:
        """Takes one optimizer step.

        Args:
            batch: (features, labels) or (features, labels, sample_weight): one global batch, which
                is cut into contiguous parts for the replicas, or `tf.distribute.DistributedValues`
                that are cut already. Any number of rows, also none.

        Raises:
            NonFiniteError: The window is not finite and `non_finite` is "raise".
            ValueError: A class or an id that the model does not have (seen on CPU devices).
        """
        self._check_variables()
        with told_plainly():
            report = self._traced(_three(batch))
        if bool(report.failed):
            raise self._non_finite_error(report)
        return report

    def run(
        self,
        iterator: Iterator[Any],
        num_steps: int,
        *,
        loss_sums: Sequence[float] = (0.0, 0.0),
    ) -> LoopReport:
        """Takes up to `num_steps` optimizer steps in one call of the graph.

        Args:
            iterator: An iterator over a tf.data.Dataset of global batches, as `__call__` takes, on
                each of several workers the same; or of the `Share` of each that is for this worker.
            num_steps: Windows to take; another number does not trace again.
            loss_sums: Those of the runs before that the report's are to go on from.

        Raises:
            NonFiniteError: As `__call__`.
            ValueError: As `__call__`.
        """
        self._check_variables()
        with told_plainly():
            last, count, exhausted, loss, weights, rows, sums = self._loop_function(
                iterator, tf.constant(num_steps, tf.int64), tf.constant(loss_sums, tf.float64)
            )
        if bool(last.failed):
            raise self._non_finite_error(last)
        return LoopReport(
            steps=int(count),
            loss=float(loss) / float(weights) if float(weights) else float("nan"),
            loss_sums=(float(sums[0]), float(sums[1])),
            gradient_norm=float(last.gradient_norm),
            rows=int(rows),
            exhausted=bool(exhausted),
        )

    @property
    def skipped(self) -> dict[str, int]:
        """Windows that updated nothing, by reason."""
        return {
            "empty": int(self.skipped_empty.numpy()),
            "non_finite": int(self.skipped_non_finite.numpy()),
            "loss_scale": int(self.skipped_loss_scale.numpy()),
        }

    def state(self) -> list[tf.Variable]:
        """Returns the step's own variables, in a fixed order: counters, EMA, loss scale."""
        scale = self.loss_scale
        own = [self.step, self.skipped_empty, self.skipped_non_finite, self.skipped_loss_scale]
        return own + self.averages + ([scale.scale, scale.finite_windows] if scale else [])

    @property
    def averages(self) -> list[tf.Variable]:
        """The EMA, one tf.Variable per trainable variable; empty without."""
        return [] if self._average is None else self._average.values

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Puts the EMA into the model for the length of a `with` block; nothing without EMA."""
        return contextlib.nullcontext() if self._average is None else self._average.in_use()

    def use_averages(self) -> None:
        """Puts the EMA into the model for good; nothing without EMA."""
        if self._average is not None:
            self._average.use()

    def _non_finite_error(self, report: StepReport) -> NonFiniteError:
        skipped = int(self._consecutive_skips.numpy())
        step = int(self.step.numpy())
        # All workers are here: what is not finite is so in the sums of all.
        found = worker_group(self.strategy).gather("a window not finite", culprits_here(report))
        several = self.strategy.num_replicas_in_sync > 1
        replicas = sorted(itertools.chain.from_iterable(found)) if several else []
        return non_finite_error(report, self._variables, step, replicas=replicas, skipped=skipped)

    def _check_variables(self) -> None:
        now = self.model.trainable_variables
        if len(now) != len(self._variables) or any(map(operator.is_not, now, self._variables)):
            raise ValueError(
                f"the model has {len(now)} trainable variables, and had others "
                f"({len(self._variables)}) when TrainStep was made: a layer was frozen, unfrozen "
                "or added since. Make a new TrainStep (and optimizer) for them."
            )

    def _traced(self, batch: tuple[Any, Any, Any]) -> StepReport:
        """Runs one window; another number of rows does not trace again."""
        flat = [tensor for tensor in tf.nest.flatten(batch) if tensor is not None]
        if any(isinstance(tensor, tf.distribute.DistributedValues) for tensor in flat):
            return self._distributed_function(batch)
        check_batch(*batch)
        return self._step_functions(batch)

    def _windows(self, iterator: Any, num_steps: tf.Tensor, sums: tf.Tensor) -> tuple[Any, ...]:
        dtype = tf.float64
        zero = tf.zeros([], dtype)

        def nothing() -> StepReport:
            scalar = tf.zeros([], sum_dtype(self.model))
            no = tf.constant(False)
            flags = [1 + len(self._variables)]
            replicas = local_replicas(self.strategy)
            return StepReport(
                *(scalar, scalar, scalar, scalar, no, no),
                finite=tf.ones(flags, tf.bool),
                finite_by_replica=tf.ones([replicas, *flags], tf.bool),
                replicas=tf.zeros([replicas], tf.int32),
            )

        def next_if(wanted: tf.Tensor) -> tf.experimental.Optional:
            return tf.cond(
                wanted,
                iterator.get_next_as_optional,
                lambda: tf.experimental.Optional.empty(iterator.element_spec),
            )

        def body(
            element: Any,
            count: Any,
            loss: Any,
            weights: Any,
            rows: Any,
            sums: Any,
            last: StepReport,
        ) -> tuple[Any, ...]:
            report = self._window(_windows_batch(element.get_value()))
            took = tf.logical_not(report.failed)
            good = tf.logical_and(took, report.applied)
            weight = tf.where(good, tf.cast(report.weight_sum, dtype), zero)
            term = tf.where(good, tf.cast(report.loss, dtype), zero) * weight
            read = tf.where(took, tf.cast(report.rows, tf.int64), tf.zeros([], tf.int64))
            count += tf.cast(took, tf.int64)
            # The loop has the element, not a condition inside it: a condition passes on each of the
            # variables by an operation of its own.
            return (
                next_if(tf.logical_and(took, count < num_steps)),
                count,
                loss + term,
                weights + weight,
                rows + read,
                sums + tf.stack([term, weight]),
                report,
            )

        count = tf.zeros([], tf.int64)
        _, count, loss, weights, rows, sums, last = tf.while_loop(
            lambda element, *_: element.has_value(),
            body,
            (next_if(count < num_steps), count, zero, zero, count, sums, nothing()),
            parallel_iterations=1,
        )
        exhausted = tf.logical_and(count < num_steps, tf.logical_not(last.failed))
        return last, count, exhausted, loss, weights, rows, sums

    def _window(self, batch: Any) -> StepReport:
        """One window, in cross-replica context; every update of a variable is below this line."""
        parts = per_replica(batch, self.strategy)
        self._describe(parts)
        with self.strategy.scope():
            step = self.step.read_value()
            scale = None if self.loss_scale is None else self.loss_scale.scale.read_value()
            updates, numbers = self.strategy.run(self._update, args=(parts, step, scale))
            update = _first_replica(self.strategy, updates)
            report = self._report(update, scale)._replace(
                finite_by_replica=tf.stack(self._results(updates.finite_here)),
                replicas=tf.stack(self._results(numbers)),
            )
            # tf.cond is outside strategy.run, so that Keras may merge replicas inside it. All
            # replicas and workers see the same reduced sums, so they take the same branch.
            tf.cond(report.applied, lambda: self._apply(updates.gradients), lambda: tf.constant(0))
            self._count(report, update)
            if self.loss_scale is not None:
                self.loss_scale.update(update.is_finite)
        return report

    def _results(self, values: Any) -> Sequence[tf.Tensor]:
        return self.strategy.experimental_local_results(values)

    def _update(self, parts: Any, step: tf.Tensor, scale: Any) -> tuple[Update, tf.Tensor]:
        """Everything from rows to the clipped g, and the replica's number, in replica context."""
        context = tf.distribute.get_replica_context()
        assert context is not None
        features, labels, sample_weight = parts
        local = accumulate_gradients(
            self.model,
            self.loss_fn,
            features,
            labels,
            sample_weight,
            micro_batch_size=self.micro_batch_size,
            jit_compile=self.jit_compile,
            added_losses=self.added_losses,
            random_position=(step, context.replica_id_in_sync_group),
            loss_scale=scale,
            description=self._description,
            expected_rows=self._expected_rows,
        )
        update = window_update(local, self.model, loss_scale=scale, clip_norm=self.clip_norm)
        return update, tf.convert_to_tensor(context.replica_id_in_sync_group, tf.int32)

    def _report(self, update: Update, scale: Any) -> StepReport:
        """Whether the update is applied, or fails the run."""
        failed = tf.logical_not(tf.logical_or(update.is_finite, update.is_empty))
        if self.non_finite == "skip":
            skips = self._consecutive_skips.read_value()
            failed = tf.logical_and(failed, skips >= self.max_consecutive_skips)
        if scale is not None:
            # float16 overflows by design until the scale fits; at 1 there is nothing to lower.
            failed = tf.logical_and(failed, scale <= 1.0)
        return StepReport(
            loss=update.loss,
            gradient_norm=update.gradient_norm,
            weight_sum=update.weight_sum,
            rows=update.rows,
            applied=tf.logical_and(update.is_finite, tf.logical_not(update.is_empty)),
            failed=failed,
            finite=update.finite,
            finite_by_replica=update.finite_here[tf.newaxis],
            replicas=tf.zeros([1], tf.int32),
        )

    def _apply(self, gradients: list[Any]) -> tf.Tensor:
        self.strategy.run(
            lambda g: apply_gradients(self.optimizer, g, self._variables), args=(gradients,)
        )
        if self._average is not None:
            self._average.update(self.strategy)
        return tf.constant(0)

    def _count(self, report: StepReport, update: Update) -> None:
        not_finite = tf.logical_not(tf.logical_or(update.is_finite, update.is_empty))
        skipped = tf.logical_and(not_finite, tf.logical_not(report.failed))
        by_scale = tf.constant(False)
        if self.loss_scale is not None:
            by_scale = tf.logical_and(skipped, self.loss_scale.scale > 1.0)
        for counter, happened in (
            (self.skipped_empty, update.is_empty),
            (self.skipped_loss_scale, by_scale),
            (self.skipped_non_finite, tf.logical_and(skipped, tf.logical_not(by_scale))),
            (self.step, tf.logical_not(report.failed)),
        ):
            counter.assign_add(tf.cast(happened, tf.int64))
        if self.non_finite == "skip":
            counted = tf.logical_and(not_finite, tf.logical_not(by_scale))
            so_far = self._consecutive_skips.read_value()
            more = so_far + tf.cast(tf.logical_not(report.failed), tf.int64)
            reset = tf.where(update.is_empty, so_far, 0)
            self._consecutive_skips.assign(tf.where(counted, more, reset))

    def _describe(self, parts: Any) -> None:
        local = _first_replica(self.strategy, parts)
        # Several outputs are counted together or each by itself as their shapes are.
        several = isinstance(self.loss_fn, WeightedLoss) and len(self.loss_fn.terms) > 1
        shapes = str([t.shape[1:] for t in tf.nest.flatten(local) if t is not None])
        if self._description is None or (several and shapes != self._described_shapes):
            self._description = describe(
                self.model, self.loss_fn, *local, added_losses=self.added_losses
            )
        elif shapes != self._described_shapes:
            # Longer rows take more: the size of a pass is that of the shapes that are traced.
            self._description = describe_shapes(
                self._description,
                self.model,
                self.loss_fn,
                *local,
                added_losses=self.added_losses,
            )
        self._described_shapes = shapes


def _windows_batch(element: Any) -> Any:
    if isinstance(element, Share):
        return Share(_three(element.batch), element.rows)
    return _three(element)


def _three(batch: Any) -> tuple[Any, Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise ValueError(
            f"a batch is (features, labels) or (features, labels, sample_weight), got "
            f"{type(batch).__name__}"
            + (f" of {len(batch)}" if isinstance(batch, (tuple, list)) else "")
            + "."
        )
    features, labels, *rest = batch
    return features, labels, rest[0] if rest else None


def _counter(name: str) -> tf.Variable:
    return tf.Variable(
        0,
        dtype=tf.int64,
        trainable=False,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _first_replica(strategy: tf.distribute.Strategy, values: Any) -> Any:
    return tf.nest.map_structure(
        lambda v: None if v is None else strategy.experimental_local_results(v)[0], values
    )
