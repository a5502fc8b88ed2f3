"""Layers of an ensemble whose members share the kernels of their hidden layers."""

from __future__ import annotations

import math

import keras
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.tensors import Shape


@keras.saving.register_keras_serializable(package="trainer_module")
class MemberScale(keras.layers.Layer):
    """Multiply the inputs of each member by a vector, and add a bias.

        [rows, size] or [rows, members, size] -> [rows, members, size]

    A Dense layer between two of these is the layer of a batch ensemble (Wen et al.,
    "BatchEnsemble", 2020): member k has the kernel W * outer(r_k, s_k), and all members share W.
    """

    def __init__(
        self, members: int, *, signs: bool = False, use_bias: bool = False, **kwargs: object
    ) -> None:
        """Create the layer.

        Args:
            members: Number of members.
            signs: Whether the vectors start at random signs, so that the members differ; otherwise
                they start at 1.
            use_bias: Whether to add a bias per member, which starts at 0.
            **kwargs: Arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.members, self.signs, self.use_bias = int(members), signs, use_bias

    def build(self, input_shape: Shape) -> None:
        """Create `scale` and `bias`, both `[members, size]`."""
        shape = (self.members, input_shape[-1])
        self.scale = self.add_weight(
            shape=shape, initializer=_random_signs if self.signs else "ones", name="scale"
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the scaled inputs of each member."""
        if len(inputs.shape) == 2:
            inputs = keras.ops.expand_dims(inputs, 1)
        outputs = keras.ops.multiply(inputs, self.scale)
        return outputs if self.bias is None else keras.ops.add(outputs, self.bias)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """Return (rows, members, size)."""
        return (input_shape[0], self.members, input_shape[-1])

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        own = {"members": self.members, "signs": self.signs, "use_bias": self.use_bias}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="trainer_module")
class MemberDense(keras.layers.Layer):
    """Compute a separate dense layer for each member, without an activation.

    [rows, members, size] -> [rows, members, units]
    """

    def __init__(self, units: int, *, zeros: bool = False, **kwargs: object) -> None:
        """Create the layer.

        Args:
            units: Number of outputs of a member.
            zeros: Whether the kernels start at 0; otherwise as in keras.layers.Dense (Glorot).
            **kwargs: Arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.units, self.zeros = int(units), zeros

    def build(self, input_shape: Shape) -> None:
        """Create `kernel` `[members, size, units]` and `bias` `[members, units]`."""
        _, members, size = input_shape
        # GlorotUniform takes the first axis for that of a convolution.
        limit = math.sqrt(6.0 / (size + self.units))
        initializer = keras.initializers.RandomUniform(-limit, limit)
        self.kernel = self.add_weight(
            shape=(members, size, self.units),
            initializer="zeros" if self.zeros else initializer,
            name="kernel",
        )
        self.bias = self.add_weight(shape=(members, self.units), initializer="zeros", name="bias")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the outputs of each member."""
        return keras.ops.add(keras.ops.einsum("bki,kio->bko", inputs, self.kernel), self.bias)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """Return (rows, members, units)."""
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "units": self.units, "zeros": self.zeros}


@keras.saving.register_keras_serializable(package="trainer_module")
class MemberMean(keras.layers.Layer):
    """Return the mean over the members; in training, the outputs of each member.

        [rows, members, units] -> [rows, units]

    In training the loss is that of each member (`losses/member_loss.py`).
    """

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the mean, or the inputs in training."""
        return inputs if training else keras.ops.mean(inputs, axis=1)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """Return (rows, units), the shape outside of training."""
        return (input_shape[0], input_shape[-1])


def _random_signs(shape: Shape, dtype: str | None = None) -> tf.Tensor:
    values = keras.initializers.RandomUniform(-1.0, 1.0)(shape, dtype=dtype)
    return keras.ops.cast(keras.ops.where(values < 0, -1.0, 1.0), values.dtype)
