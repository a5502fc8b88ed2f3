"""Learn the weights of several losses by their uncertainty."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_module.losses.nested import path_name
from trainer_module.losses.weighted_loss import LossFunction, WeightedLoss
from trainer_module.window.gradient_sum import sum_dtype

# Largest change of s_k in a step, so that a weight changes by at most a factor of e in 50 steps.
_RATE = 0.02


class TaskBalance:
    """Log-variances s_k of the tasks k (Kendall et al., 2018, arXiv:1705.07115).

        loss = Σ_k ( exp(-s_k) L_k + s_k / 2 )

    L_k ≥ 0 is the loss of output k, including its factor in `loss_weights`. All s_k start at 0.
    Each applied window takes one step against the slope 1/2 - exp(-s_k) L_k:

        s_k <- s_k - 0.02 (1/2 - exp(-s_k) L_k) / (1/2 + exp(-s_k) L_k)

    The divisor makes the step independent of the size of L_k; losses may differ by orders of
    magnitude. At the minimum, the weight exp(-s_k) is 1 / (2 L_k), so that each task contributes
    1/2 to the loss.

    Attributes:
        log_variances: s_k, `[tasks]`, of the dtype of the sums.
    """

    def __init__(self, model: keras.Model, loss_fn: LossFunction) -> None:
        """Create the variable; call it in the strategy's scope.

        Args:
            model: The model, for the dtype of the sums.
            loss_fn: A loss that `check_tasks` accepts.
        """
        assert isinstance(loss_fn, WeightedLoss)
        self._names = [path_name(term.path) for term in loss_fn.terms]
        self.log_variances = tf.Variable(
            tf.zeros([len(self._names)], sum_dtype(model)),
            trainable=False,
            name="task_log_variances",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @property
    def weights(self) -> dict[str, float]:
        """The weight exp(-s_k) of each task by the name of its output."""
        values = tf.exp(-self.log_variances).numpy()
        return dict(zip(self._names, map(float, values), strict=True))

    def update(self, task_losses: tf.Tensor, is_applied: tf.Tensor) -> None:
        """Take a step, in cross-replica context.

        Args:
            task_losses: L_k, `[tasks]`. A task whose L_k is not finite, as without rows, stays.
            is_applied: Whether the window is applied, scalar bool.
        """
        s = self.log_variances.read_value()
        share = tf.exp(-s) * tf.cast(task_losses, s.dtype)
        slope = (0.5 - share) / (0.5 + tf.abs(share))
        moves = tf.logical_and(is_applied, tf.math.is_finite(slope))
        self.log_variances.assign(tf.where(moves, s - _RATE * slope, s))


def check_tasks(loss_fn: LossFunction) -> None:
    """Raise ValueError for a loss that does not have several outputs."""
    count = len(loss_fn.terms) if isinstance(loss_fn, WeightedLoss) else 1
    if count < 2:
        raise ValueError(
            f"task_balance='uncertainty' with {count} loss: give one for each of at least two "
            "outputs, such as {'price': 'mse', 'sold': 'binary_crossentropy'}, or leave out "
            "task_balance."
        )
