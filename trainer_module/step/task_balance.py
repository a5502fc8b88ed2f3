"""Learn the weights of several losses."""

from __future__ import annotations

import abc

import keras
import tensorflow as tf

from trainer_module.losses.nested import path_name
from trainer_module.losses.weighted_loss import LossFunction, WeightedLoss
from trainer_module.options.step_options import TaskBalance
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.update import Update

# Largest change of a log-weight in a step: a weight changes by at most a factor of e in 50 steps.
_RATE = 0.02
_ALPHA = 1.5  # of GradNorm, as in the experiments of the paper on NYUv2


class LogWeights(abc.ABC):
    """The logarithm of the weight of each task; the weights start at 1.

    Attributes:
        log_weights: `[tasks]`, of the dtype of the sums.
    """

    def __init__(self, model: keras.Model, loss_fn: LossFunction) -> None:
        """Create the variables; call it in the strategy's scope.

        Args:
            model: The model, for the dtype of the sums.
            loss_fn: A loss that `check_tasks` accepts.
        """
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


class Uncertainty(LogWeights):
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


class GradNorm(LogWeights):
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
) -> LogWeights | None:
    """Return the weights of the tasks; None if they are not learned."""
    kinds = {"uncertainty": Uncertainty, "gradnorm": GradNorm}
    return None if balance == "none" else kinds[balance](model, loss_fn)


def check_tasks(loss_fn: LossFunction, balance: str) -> None:
    """Raise ValueError for a loss that does not have several outputs."""
    count = len(loss_fn.terms) if isinstance(loss_fn, WeightedLoss) else 1
    if count < 2:
        raise ValueError(
            f"task_balance={balance!r} with {count} loss: give one for each of at least two "
            "outputs, such as {'price': 'mse', 'sold': 'binary_crossentropy'}, or leave out "
            "task_balance."
        )
