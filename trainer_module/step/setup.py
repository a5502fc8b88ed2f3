"""Check the model, optimizer, loss and options of a step, and compute its windows.

The weights of several losses may be learned.
"""

from __future__ import annotations

import abc
import operator
from typing import Any

import keras
import tensorflow as tf

from trainer_module.checks.compiled import check_optimizer, warn_compile_args_ignored
from trainer_module.checks.logits import warn_if_logits
from trainer_module.checks.model import check_model, reject_custom_train_step
from trainer_module.common.tensors import LossLike, present_leaves, with_leaves
from trainer_module.devices.multi_worker import GraphMarks
from trainer_module.gradients.clipping import check_placement, plan_clipping
from trainer_module.losses.weighted_loss import (
    LossFunction,
    SeparateLoss,
    WeightedLoss,
    as_loss_function,
    path_name,
)
from trainer_module.options.step_options import StepOptions, TaskBalance
from trainer_module.window.accumulation import sum_window
from trainer_module.window.describe import (
    Description,
    check_rows,
    describe,
    describe_shapes,
    shared_variables,
)
from trainer_module.window.gradient_sum import default_added_losses, sum_dtype
from trainer_module.window.micro_batch import micro_batch_gradients
from trainer_module.window.spec import Batch, StepInputs, WindowSpec, placement_of
from trainer_module.window.transforms import check_transforms
from trainer_module.window.update import Update, UpdateInputs, update_functions, window_update


class StepSetup:
    """A checked model, optimizer, loss and options, and the update that they define.

    Attributes:
        options: The options, with `added_losses` resolved.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        spec: The model, the loss and the micro-batch size of the windows.
        variables: The trainable variables at construction.
        marks: Where the graph is, for the other workers.
        rows_checked: Whether a batch has shown that rows do not influence each other.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss_fn: LossLike,
        options: dict[str, Any],
        strategy: tf.distribute.Strategy,
    ) -> None:
        """Check the arguments, and build the optimizer in the strategy's scope.

        Raises:
            ValueError: See `TrainStep`.
        """
        given = StepOptions.parse(options)
        check_model(model, strategy)
        check_optimizer(optimizer, strategy)
        reject_custom_train_step(model, ("compute_loss", "train_step"), by="TrainStep")
        warn_compile_args_ignored(model, loss_fn, optimizer=optimizer)
        loss_fn = as_loss_function(loss_fn)
        warn_if_logits(model, loss_fn)
        check_transforms(given.transforms, model)
        if given.task_balance != "none":
            _check_tasks(loss_fn, given.task_balance)
        if given.clip_per_example is not None:
            check_placement(placement_of(model), given.clip_per_example)
        added_losses = given.added_losses or default_added_losses(model)
        self.options = given.model_copy(update={"added_losses": added_losses})
        expected_rows = given.expected_rows
        if expected_rows is not None:
            expected_rows = -(-expected_rows // strategy.num_replicas_in_sync)
        self.loss_fn = loss_fn
        if given.task_balance == "gradnorm" and isinstance(loss_fn, WeightedLoss):
            loss_fn = SeparateLoss.of(loss_fn)
        self.spec = WindowSpec(
            model=model,
            loss_fn=loss_fn,
            added_losses=added_losses,
            micro_batch_size=given.micro_batch_size,
            jit_compile=given.jit_compile,
            expected_rows=expected_rows,
        )
        self.optimizer = optimizer
        self.variables = list(model.trainable_variables)
        self.marks = GraphMarks(strategy)
        self._functions = update_functions(self.options)
        self._description: Description | None = None
        self._shared: tuple[bool, ...] = ()
        self._described_shapes = ""
        self.rows_checked = False
        with strategy.scope():
            if not optimizer.built:
                optimizer.build(self.variables)
                check_optimizer(optimizer, strategy)  # build() creates those of a MultiOptimizer
            if strategy.num_replicas_in_sync == 1:
                self.spec.placement.prepare_optimizer(optimizer)

    def check_variables(self) -> None:
        """Raise ValueError if the model's trainable variables have changed since construction."""
        now = self.spec.model.trainable_variables
        if len(now) != len(self.variables) or any(map(operator.is_not, now, self.variables)):
            raise ValueError(
                f"the model has {len(now)} trainable variables, and had others "
                f"({len(self.variables)}) when TrainStep was made: a layer was frozen, unfrozen, "
                "added or built since. Call the model on one row first, then make a new TrainStep "
                "(and optimizer)."
            )

    def describe(self, batch: Batch) -> Description:
        """Return the description of windows of the batch's shapes, traced if needed.

        Args:
            batch: The rows of one replica; only shapes and dtypes count.
        """
        # Whether several outputs share one Σ w depends on their shapes.
        loss_fn = self.spec.loss_fn
        several = isinstance(loss_fn, WeightedLoss) and len(loss_fn.terms) > 1
        shapes = str([t.shape[1:] for t in present_leaves(batch)])
        if self._description is None or (several and shapes != self._described_shapes):
            self._description = describe(self.spec, batch)
            self.check_variables()  # a layer may be built only when it is called
            if self.options.task_balance == "gradnorm":
                self._shared = shared_variables(self.spec, batch)
        elif shapes != self._described_shapes:
            # Longer rows take more memory, so the size of a pass depends on the traced shapes.
            self._description = describe_shapes(self._description, self.spec, batch)
        self._described_shapes = shapes
        return self._description

    def check_rows(self, batch: Batch, specs: Batch | None = None) -> None:
        """Check with the first batch of two rows or more that rows do not influence each other.

        Args:
            batch: Rows, with values.
            specs: Their specs in the graph that takes the steps; None: those of the rows.

        Raises:
            ValueError: Rows influence each other.
        """
        if not self.rows_checked:
            batch = with_leaves(batch, map(tf.convert_to_tensor, present_leaves(batch)))
            description = self.describe(specs or batch)
            self.rows_checked = check_rows(self.spec, batch, description)

    def update(
        self, batch: Batch, inputs: StepInputs, step: tf.Tensor, description: Description
    ) -> Update:
        """Return the update of a window, up to and including the clipping, in replica context.

        Args:
            batch: The replica's part of the global batch.
            inputs: Random position, loss scale and values of variables.
            step: Number of the optimizer step, int64 scalar.
            description: The result of `describe` for the batch.
        """
        gradients, clip_norm = micro_batch_gradients, self.options.clip_per_example
        if clip_norm is not None:
            gradients = plan_clipping(self.spec, batch, description, clip_norm)
            description = description._replace(bytes_per_row=gradients.row_bytes)
        local = sum_window(self.spec, batch, inputs, description, gradients)
        self.marks.summing(local)
        model, placement = self.spec.model, self.spec.placement
        of_update = UpdateInputs(
            model,
            placement,
            step,
            inputs.loss_scale,
            inputs.log_weights,
            self._shared,
            inputs.values,
        )
        return window_update(local, of_update, self._functions)


# Largest change of a log-weight in a step: a weight changes by at most a factor of e in 50 steps.
_RATE = 0.02
_ALPHA = 1.5  # of GradNorm, as in the experiments of the paper on NYUv2


class _LogWeights(abc.ABC):
    """The logarithm of the weight of each task; the weights start at 1.

    Attributes:
        log_weights: `[tasks]`, of the dtype of the sums.
    """

    def __init__(self, model: keras.Model, loss_fn: LossFunction) -> None:
        """Create the variables; call it in the strategy's scope."""
        assert isinstance(loss_fn, WeightedLoss)
        self._names = [path_name(term.path) for term in loss_fn.terms]
        self._dtype = sum_dtype(model)
        self.log_weights = self._zeros("task_log_weights")

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each task by the name of its output."""
        values = tf.exp(self.log_weights).numpy()
        return dict(zip(self._names, map(float, values), strict=True))

    def state(self) -> list[tf.Variable]:
        """Return the variables to checkpoint, in a fixed order."""
        return [self.log_weights]

    @abc.abstractmethod
    def update(self, update: Update) -> None:
        """Change the weights after a window, in cross-replica context."""

    def _zeros(self, name: str) -> tf.Variable:
        return tf.Variable(
            tf.zeros([len(self._names)], self._dtype),
            trainable=False,
            name=name,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )


class _Uncertainty(_LogWeights):
    """Weights exp(-s_k) by log-variances s_k (Kendall et al., 2018, arXiv:1705.07115).

        loss = Σ_k ( exp(-s_k) L_k + s_k / 2 )

    L_k ≥ 0 is the loss of output k, including its factor in `loss_weights`. All s_k start at 0.
    Each applied window takes one step against the slope 1/2 - exp(-s_k) L_k:

        s_k <- s_k - 0.02 (1/2 - exp(-s_k) L_k) / (1/2 + exp(-s_k) L_k)

    The divisor makes the step independent of the size of L_k; losses may differ by orders of
    magnitude. At the minimum, the weight exp(-s_k) is 1 / (2 L_k), so that each task contributes
    1/2 to the loss.
    """

    def update(self, update: Update) -> None:
        """Take a step. A task whose L_k is not finite, as without rows, stays."""
        assert update.task_losses is not None
        kept = self.log_weights.read_value()
        share = tf.exp(kept) * tf.cast(update.task_losses, kept.dtype)
        slope = (0.5 - share) / (0.5 + tf.abs(share))
        moves = tf.logical_and(update.is_applied, tf.math.is_finite(slope))
        self.log_weights.assign(tf.where(moves, kept + _RATE * slope, kept))


class _GradNorm(_LogWeights):
    """Weights w_k that bring the norms of the tasks' gradients to targets (Chen et al., 2018).

        G_k = ‖w_k ∇L_k‖ over the variables that all tasks share
        r_k = (L_k / L_k of the first window), divided by its mean over the tasks
        target_k = mean(G) r_k^1.5

    The loss is Σ_k w_k L_k. Each applied window changes the weights after its update:

        log w_k <- log w_k + 0.02 (target_k - G_k) / (target_k + G_k),   then w_k <- w_k K / Σ w

    The paper (arXiv:1711.02257) minimises Σ_k |G_k - target_k| by gradient descent instead, whose
    steps depend on the size of the gradients. Both are at rest where each G_k is its target.
    """

    def __init__(self, model: keras.Model, loss_fn: LossFunction) -> None:
        super().__init__(model, loss_fn)
        self._first_losses = self._zeros("task_first_losses")

    def state(self) -> list[tf.Variable]:
        """Return the variables to checkpoint, in a fixed order."""
        return [self.log_weights, self._first_losses]

    def update(self, update: Update) -> None:
        """Take a step, unless a loss or a norm is not finite, as for a task without rows."""
        assert update.task_losses is not None
        assert update.task_norms is not None
        kept, first = self.log_weights.read_value(), self._first_losses.read_value()
        losses, norms = (tf.cast(t, kept.dtype) for t in (update.task_losses, update.task_norms))
        first_losses = tf.where(first > 0, first, losses)
        ratios = losses / first_losses
        targets = tf.reduce_mean(norms) * (ratios / tf.reduce_mean(ratios)) ** _ALPHA
        changed = kept + _RATE * (targets - norms) / (targets + norms)
        changed -= tf.math.log(tf.reduce_mean(tf.exp(changed)))
        is_known = tf.reduce_all(tf.math.is_finite(changed))
        moves = tf.logical_and(update.is_applied, is_known)
        self.log_weights.assign(tf.where(moves, changed, kept))
        self._first_losses.assign(tf.where(moves, first_losses, first))


def create_balance(
    balance: TaskBalance, model: keras.Model, loss_fn: LossFunction
) -> _LogWeights | None:
    """Return the weights of the tasks; None if they are not learned."""
    kinds = {"uncertainty": _Uncertainty, "gradnorm": _GradNorm}
    return None if balance == "none" else kinds[balance](model, loss_fn)


def _check_tasks(loss_fn: LossFunction, balance: str) -> None:
    """Raise ValueError for a loss that does not have several outputs."""
    count = len(loss_fn.terms) if isinstance(loss_fn, WeightedLoss) else 1
    if count < 2:
        raise ValueError(
            f"task_balance={balance!r} with {count} loss: give one for each of at least two "
            "outputs, such as {'price': 'mse', 'sold': 'binary_crossentropy'}, or leave out "
            "task_balance."
        )
