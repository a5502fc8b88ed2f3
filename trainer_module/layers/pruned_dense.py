"""A dense layer whose smallest weights are removed during training."""

from __future__ import annotations

import operator

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.positive_int import check_positive_int
from trainer_module.layers.dense_base import DenseBase


@keras.saving.register_keras_serializable(package="trainer_module")
class PrunedDense(DenseBase):
    """Return `activation(x @ (kernel * mask) + bias)`; the mask removes the smallest weights.

    The share of weights that the mask removes after t optimizer steps is, for t from `begin_step`
    to `end_step`, at each `every` steps (Zhu and Gupta, "To prune, or not to prune", 2017):

        sparsity * (1 - (1 - (t - begin_step) / (end_step - begin_step)) ** 3)

    The callback `Prune` updates the masks between calls of the graph; in your own training
    loop, call `prune`. A removed weight stays removed, whatever momentum and weight decay do to the
    kernel, because each call multiplies it by the mask. The mask is a variable that is not trained,
    so that checkpoints, saved files and exports hold it.

    Example:
        layer = PrunedDense(256, sparsity=0.8, begin_step=500, end_step=5000, every=100)
    """

    def __init__(
        self,
        units: int,
        sparsity: float,
        begin_step: int,
        end_step: int,
        every: int = 100,
        *,
        activation: object = None,
        use_bias: bool = True,
        **kwargs: object,
    ) -> None:
        """Create the layer; it has no variables before `build`.

        Args:
            units: Number of outputs.
            sparsity: Share of the weights to remove in the end, from 0 to below 1.
            begin_step: Optimizer steps before the schedule begins.
            end_step: Optimizer steps after which the share is `sparsity`.
            every: Optimizer steps between two updates of the mask.
            activation: As in keras.layers.Dense; None: no activation.
            use_bias: Whether to add a bias `[units]`, which starts at 0.
            **kwargs: Arguments of keras.layers.Layer.

        Raises:
            ValueError: `units` or `every` is below 1, `sparsity` is not in [0, 1), `begin_step` is
                negative, `end_step` is not above it, or a count is not an integer.
        """
        super().__init__(units, activation=activation, use_bias=use_bias, **kwargs)
        self.sparsity = _check_share(sparsity)
        self.begin_step, self.end_step = _check_steps(begin_step, end_step)
        self.every = check_positive_int("every", every)

    def build_kernel(self, inputs: int) -> None:
        """Create `kernel` and `mask`, both `[inputs, units]`; the mask starts at 1."""
        shape = (inputs, self.units)
        self.kernel = self.add_weight(shape=shape, initializer="glorot_uniform", name="kernel")
        self.mask = self.add_weight(shape=shape, initializer="ones", trainable=False, name="mask")

    def multiply(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return `inputs @ (kernel * mask)`."""
        return keras.ops.matmul(inputs, keras.ops.multiply(self.kernel, self.mask))

    def steps_until_due(self, step: int) -> int | None:
        """Return the steps until the next update of the mask; None after the last one.

        Args:
            step: Optimizer steps taken.
        """
        if step >= self.end_step:
            return None
        if step < self.begin_step:
            return self.begin_step - step
        done = step - self.begin_step
        return min(self.every - done % self.every, self.end_step - step)

    def scheduled_sparsity(self, step: int) -> float:
        """Return the share of removed weights after that many optimizer steps.

        Between two updates it is that of the earlier one.
        """
        if step >= self.end_step:
            return self.sparsity
        done = max(step - self.begin_step, 0)
        progress = (done - done % self.every) / (self.end_step - self.begin_step)
        return self.sparsity * (1 - (1 - progress) ** 3)

    def prune(self, step: int) -> bool:
        """Remove the smallest weights, so that their share is that of the schedule.

        Call it outside of a graph and of `strategy.run`. Weights of equal size are removed in their
        order in the kernel. Calling it twice for a step changes nothing.

        Args:
            step: Optimizer steps taken.

        Returns:
            Whether the mask has changed.

        Raises:
            ValueError: `step` is not an integer of at least 0.
        """
        if _step(step) < 0:
            raise ValueError(f"step={step!r}: use the number of optimizer steps taken, such as 0.")
        mask = keras.ops.convert_to_numpy(self.mask).astype("float32")
        count = round(self.scheduled_sparsity(step) * mask.size)
        if count <= np.count_nonzero(mask == 0):
            return False
        kernel = keras.ops.convert_to_numpy(self.kernel).astype("float64")
        # Removed weights come first, so that none of them returns.
        sizes = np.where(mask == 0, -1.0, np.abs(kernel)).ravel()
        new = np.ones(mask.size, "float32")
        new[np.argsort(sizes, kind="stable")[:count]] = 0.0
        self.mask.assign(new.reshape(mask.shape))
        return True

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "sparsity": self.sparsity,
            "begin_step": self.begin_step,
            "end_step": self.end_step,
            "every": self.every,
        }


def _check_share(sparsity: Json) -> float:
    try:
        share = float(sparsity)
    except (TypeError, ValueError):
        share = float("nan")
    if not 0.0 <= share < 1.0:
        raise ValueError(
            f"sparsity={sparsity!r}: use the share of weights to remove, from 0 to below 1."
        )
    return share


def _check_steps(begin_step: Json, end_step: Json) -> tuple[int, int]:
    begin, end = _step(begin_step), _step(end_step)
    if begin < 0 or end <= begin:
        raise ValueError(
            f"begin_step={begin_step!r}, end_step={end_step!r}: use whole numbers with "
            "0 <= begin_step < end_step."
        )
    return begin, end


def _step(value: Json) -> int:
    """Return a number of steps; -1 for what is none."""
    try:
        return -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return -1
