"""A dense layer whose kernel is the product of two narrow matrices."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.positive_int import check_positive_int
from trainer_module.layers.dense_base import DenseBase


@keras.saving.register_keras_serializable(package="trainer_module")
class LowRankDense(DenseBase):
    """Return `activation(x @ U @ V + bias)`, with U `[inputs, rank]` and V `[rank, units]`.

    It has rank * (inputs + units) weights instead of inputs * units, and as many multiplications
    per row. U and V start at normal random numbers, for which an entry of the kernel U @ V has the
    variance 2 / (inputs + units), as in keras.layers.Dense (Glorot).

    Example:
        model = keras.Sequential([keras.Input((512,)), LowRankDense(512, rank=16)])
    """

    def __init__(
        self,
        units: int,
        rank: int,
        *,
        activation: object = None,
        use_bias: bool = True,
        **kwargs: object,
    ) -> None:
        """Create the layer; it has no variables before `build`.

        Args:
            units: Number of outputs.
            rank: Rank of the kernel, at most the number of inputs and of `units`.
            activation: As in keras.layers.Dense; None: no activation.
            use_bias: Whether to add a bias `[units]`, which starts at 0.
            **kwargs: Arguments of keras.layers.Layer.

        Raises:
            ValueError: `units` or `rank` is not an integer, is below 1, or `rank` is above `units`.
        """
        super().__init__(units, activation=activation, use_bias=use_bias, **kwargs)
        self.rank = check_positive_int("rank", rank)
        _check_rank(self.rank, self.units, "units")

    def build_kernel(self, inputs: int) -> None:
        """Create `u` and `v`.

        Raises:
            ValueError: `rank` is above the number of inputs.
        """
        _check_rank(self.rank, inputs, "inputs")
        # An entry of U @ V sums `rank` products, each of variance std^4.
        std = (2.0 / (inputs + self.units) / self.rank) ** 0.25
        self.u = self.add_weight(
            shape=(inputs, self.rank),
            initializer=keras.initializers.RandomNormal(stddev=std),
            name="u",
        )
        self.v = self.add_weight(
            shape=(self.rank, self.units),
            initializer=keras.initializers.RandomNormal(stddev=std),
            name="v",
        )

    def multiply(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return `inputs @ U @ V`, from left to right, so that no kernel is materialised."""
        return keras.ops.matmul(keras.ops.matmul(inputs, self.u), self.v)

    @classmethod
    def from_dense(cls, layer: keras.layers.Dense, rank: int) -> LowRankDense:
        """Return a built layer whose kernel is the best approximation of rank `rank`.

        The approximation is the truncated singular value decomposition: no matrix of that rank has
        a smaller sum of squared differences (Eckart and Young 1936). Bias, activation, name and
        dtype policy are those of the given layer, which does not change.

        Args:
            layer: A built Dense layer that is not quantised.
            rank: Rank of the new kernel.

        Raises:
            ValueError: The layer is not Dense, is not built, is quantised or has weights
                that are not finite, or the rank does not fit.
        """
        if not isinstance(layer, keras.layers.Dense):
            raise ValueError(f"layer={layer!r}: use a keras.layers.Dense.")
        if not layer.built:
            raise ValueError(f"layer={layer.name!r} is not built: call it or its model first.")
        if getattr(layer, "quantization_mode", None) is not None:
            raise ValueError(
                f"layer={layer.name!r} is quantised ({layer.quantization_mode}): use the layer "
                "before `quantize`."
            )
        new = cls(
            layer.units,
            rank,
            activation=layer.activation,
            use_bias=layer.use_bias,
            name=layer.name,
            dtype=layer.dtype_policy,
        )
        kernel = keras.ops.convert_to_numpy(layer.kernel).astype("float64")
        new.build((None, kernel.shape[0]))
        if not np.all(np.isfinite(kernel)):
            raise ValueError(
                f"the kernel of layer={layer.name!r} has NaN or infinite weights: use a layer "
                "with finite weights."
            )
        left, values, right = np.linalg.svd(kernel, full_matrices=False)
        root = np.sqrt(values[:rank])
        new.u.assign(left[:, :rank] * root)
        new.v.assign(root[:, None] * right[:rank])
        if new.bias is not None:
            new.bias.assign(layer.bias)
        return new

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "rank": self.rank}


def _check_rank(rank: int, most: int, name: str) -> None:
    if rank > most:
        raise ValueError(
            f"rank={rank} is above {name}={most}: use at most {most}, or keras.layers.Dense."
        )
