"""A dense layer whose smallest weights are removed during training."""

from __future__ import annotations

import numbers

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.tensors import Shape


@keras.saving.register_keras_serializable(package="trainer_module")
class PrunedDense(keras.layers.Dense):
    """Return `activation(x @ (kernel * mask) + bias)`; the mask removes the smallest weights.

    The share of weights that the mask removes after t optimizer steps is, for t from `begin_step`
    to `end_step`, at each `every` steps (Zhu and Gupta, "To prune, or not to prune", 2017):

        sparsity * (1 - (1 - (t - begin_step) / (end_step - begin_step)) ** 3)

    The callback `Prune` updates the masks; in your own training loop, call `prune` between steps. A
    removed weight stays removed, whatever momentum and weight decay do to the kernel. Checkpoints,
    saved files and exports hold the mask, a variable `[inputs, units]` that is not trained.

    Example:
        layer = PrunedDense(256, sparsity=0.8, begin_step=500, end_step=5000, every=100)
    """

    # Keras' own know `kernel` and `bias` alone.
    quantize = keras.layers.Layer.quantize
    save_own_variables = keras.layers.Layer.save_own_variables
    load_own_variables = keras.layers.Layer.load_own_variables

    def __init__(
        self,
        units: int,
        sparsity: float,
        begin_step: int,
        end_step: int,
        every: int = 100,
        **kwargs: object,
    ) -> None:
        """Create the layer; it has no variables before `build`.

        Args:
            units: Number of outputs.
            sparsity: Share of the weights to remove in the end, from 0 to below 1.
            begin_step: Optimizer steps before the schedule begins.
            end_step: Optimizer steps after which the share is `sparsity`.
            every: Optimizer steps between two updates of the mask.
            **kwargs: Other arguments of keras.layers.Dense.

        Raises:
            ValueError: A number of the schedule does not fit.
        """
        super().__init__(units, **kwargs)
        steps = (begin_step, end_step, every)
        whole = all(isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in steps)
        is_share = isinstance(sparsity, numbers.Real) and 0 <= sparsity < 1
        if not (is_share and whole and 0 <= begin_step < end_step and every >= 1):
            raise ValueError(
                f"sparsity={sparsity!r}, begin_step={begin_step!r}, end_step={end_step!r}, "
                f"every={every!r}: use a share from 0 to below 1, and whole numbers with "
                "0 <= begin_step < end_step and every >= 1."
            )
        self.sparsity = float(sparsity)
        self.begin_step, self.end_step, self.every = map(int, steps)

    def build(self, input_shape: Shape) -> None:
        """Create the variables; the mask starts at 1."""
        super().build(input_shape)
        shape = (input_shape[-1], self.units)
        self.mask = self.add_weight(shape=shape, initializer="ones", trainable=False, name="mask")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return outputs `[rows, ..., units]`."""
        outputs = keras.ops.matmul(inputs, keras.ops.multiply(self.kernel, self.mask))
        return self.activation(outputs if self.bias is None else outputs + self.bias)

    def steps_until_due(self, step: int) -> int | None:
        """Return the steps from `step` to the next update of the mask; None after the last one."""
        if step >= self.end_step:
            return None
        done = step - self.begin_step
        return -done if done < 0 else min(self.every - done % self.every, self.end_step - step)

    def prune(self, step: int) -> None:
        """Remove the smallest weights, so that their share is that after `step` optimizer steps.

        Call it outside of a graph and of `strategy.run`. Weights of equal size are removed in their
        order in the kernel.
        """
        done = max(min(step, self.end_step) - self.begin_step, 0)
        done -= 0 if step >= self.end_step else done % self.every
        share = self.sparsity * (1 - (1 - done / (self.end_step - self.begin_step)) ** 3)
        mask = keras.ops.convert_to_numpy(self.mask).astype("float32")  # a copy
        sizes = np.abs(keras.ops.convert_to_numpy(self.kernel).astype("float64"))
        sizes[mask == 0] = -1.0  # removed weights come first, so that none of them returns
        mask.flat[np.argsort(sizes, axis=None, kind="stable")[: round(share * mask.size)]] = 0.0
        self.mask.assign(mask)

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        names = ("sparsity", "begin_step", "end_step", "every")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
