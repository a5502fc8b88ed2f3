"""The layers of the default models: pixels, hinges, tables of ids and texts, pruned layers."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from statistics import NormalDist

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.layers import TableLookup
from trainer_module.common.tensors import Json, Shape, Tensors


@keras.saving.register_keras_serializable(package="trainer_module")
class Hinges(keras.layers.Layer):
    """Return each number and its distance beyond each knot of its column.

        x -> x, max(x - k_1, 0), ..., max(x - k_n, 0)
        [rows, columns] -> [rows, columns * (1 + n)]

    A weighted sum of these is a piecewise linear function of the number, as in trees and splines.
    A dense layer alone has to build such functions from weights that all columns share. This is the
    piecewise linear encoding of Gorishniy et al., "On Embeddings for Numerical Features in Tabular
    Deep Learning" (2022), in another basis and with learned knots. The knots start at the quantiles
    of a standard normal distribution, because scaled columns have values near 0 and about 1 wide.
    """

    def __init__(self, knots: int, **kwargs: object) -> None:
        """Create the layer."""
        super().__init__(**kwargs)
        self.count = knots

    def build(self, input_shape: Shape) -> None:
        """Create the knots `[columns, knots]`."""
        normal = NormalDist()
        start = [normal.inv_cdf((i + 0.5) / self.count) for i in range(self.count)]

        def quantiles(shape: Shape, dtype: str | None = None) -> tf.Tensor:
            return keras.ops.broadcast_to(keras.ops.convert_to_tensor(start, dtype), shape)

        self.knots = self.add_weight(
            shape=(input_shape[-1], self.count), initializer=quantiles, name="knots"
        )

    def call(self, numbers: tf.Tensor) -> tf.Tensor:
        """Return numbers `[rows, columns]` and their distances beyond the knots."""
        ops = keras.ops
        each = ops.expand_dims(numbers, -1)
        found = ops.concatenate([each, ops.relu(each - self.knots)], axis=-1)
        return ops.reshape(found, (-1, found.shape[1] * found.shape[2]))

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "knots": self.count}


@keras.saving.register_keras_serializable(package="trainer_module")
class PixelNormalization(keras.layers.Layer):
    """Return `(x - mean) / sqrt(variance)` of each channel; 0 where the variance is 0.

        uint8 [rows, height, width, channels] -> the compute dtype, of the same shape

    The division is computed in the dtype of the variables, so that bytes lose nothing in 16 bits.
    """

    def __init__(self, mean: Sequence[float], variance: Sequence[float], **kwargs: object) -> None:
        """Create the layer from the mean and the variance of each channel."""
        super().__init__(**kwargs)
        self.mean, self.variance = [[float(x) for x in each] for each in (mean, variance)]

    def call(self, pixels: tf.Tensor) -> tf.Tensor:
        """Return the normalised pixels."""
        wide = self.variable_dtype
        scale = [1 / math.sqrt(x) if x > 0 else 0.0 for x in self.variance]
        mean, scale = (keras.ops.convert_to_tensor(x, wide) for x in (self.mean, scale))
        return keras.ops.cast((keras.ops.cast(pixels, wide) - mean) * scale, self.compute_dtype)

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "mean": self.mean, "variance": self.variance}


@keras.saving.register_keras_serializable(package="trainer_module")
class PooledEmbedding(keras.layers.Layer):
    """Sum the embeddings of ids, each times its weight.

        ids [rows, places], weights [rows, places] -> Σ_i weights_i · table[ids_i], [rows, size]

    It equals a dense layer without bias whose input has one column per id, but reads only the
    kernel rows of the given ids. An id outside the table counts as the last one.
    """

    def __init__(self, count: int, size: int, **kwargs: object) -> None:
        """Create the layer."""
        super().__init__(**kwargs)
        self.count, self.size = int(count), size

    def build(self, input_shape: Shape) -> None:
        """Create the table."""
        self.table = self.add_weight(
            shape=(self.count, self.size), initializer="uniform", name="table"
        )

    def call(self, inputs: Sequence[Tensors]) -> tf.Tensor:
        """Return the sums for [ids, weights]."""
        ops = keras.ops
        ids, weights = inputs
        ids = ops.cast(ids, "int32")
        ids = ops.where((ids < 0) | (ids >= self.count), self.count - 1, ids)
        found = ops.take(self.table, ids, axis=0)
        return ops.sum(found * ops.expand_dims(ops.cast(weights, found.dtype), -1), axis=1)

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "count": self.count, "size": self.size}


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


@keras.saving.register_keras_serializable(package="trainer_module")
class PackedEmbedding(TableLookup):
    """Look up all id columns in one table, with a separate range of rows for each column.

        [rows, columns] -> [rows, columns * size]

    It needs one gather for hundreds of columns, instead of hundreds of small layers. An id outside
    its column's range counts as the column's last id, so it never reads another column's rows.
    Columns whose ids have the same meaning may have one range.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        size: int,
        first_ids: Sequence[int] | None = None,
        initializer: str = "uniform",
        starts: Sequence[int] | None = None,
        **kwargs: object,
    ) -> None:
        """Create the layer.

        Column i has `sizes[i]` ids from `first_ids[i]` on (default 0), and rows from `starts[i]` on
        (default: one range after the other). Columns with the same start share their rows.
        """
        super().__init__(**kwargs)
        self.sizes = [int(n) for n in sizes]
        self.size = size
        self.first_ids = [int(n) for n in first_ids or [0] * len(self.sizes)]
        self.initializer = initializer
        separate = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        self.starts = separate if starts is None else [int(n) for n in starts]

    def build(self, input_shape: Shape) -> None:
        """Create the table."""
        rows = max(start + size for start, size in zip(self.starts, self.sizes, strict=True))
        self.table = self.add_weight(
            shape=(rows, self.size), initializer=self.initializer, name="table"
        )

    def table_rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the row of the table for each id, int32 `[rows, columns]`."""
        ops = keras.ops
        local = ops.cast(ids, "int32") - ops.convert_to_tensor(self.first_ids, "int32")
        last = ops.convert_to_tensor([n - 1 for n in self.sizes], "int32")
        local = ops.where((local < 0) | (local > last), last, local)
        return local + ops.convert_to_tensor(self.starts, "int32")

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        names = ("sizes", "size", "first_ids", "initializer", "starts")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
