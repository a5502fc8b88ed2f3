"""What dense layers with another kind of kernel share: bias, activation, shapes and checks."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.positive_int import check_positive_int
from trainer_module.common.tensors import Shape


class DenseBase(keras.layers.Layer):
    """Return `activation(multiply(inputs) + bias)`.

        [rows, ..., inputs] -> [rows, ..., units]

    It is not a subclass of keras.layers.Dense, so that `model.quantize` does not change it.
    """

    def __init__(
        self,
        units: int,
        *,
        activation: object = None,
        use_bias: bool = True,
        **kwargs: object,
    ) -> None:
        """Create the layer; it has no variables before `build`.

        Args:
            units: Number of outputs.
            activation: As in keras.layers.Dense; None: no activation.
            use_bias: Whether to add a bias `[units]`, which starts at 0.
            **kwargs: Arguments of keras.layers.Layer.

        Raises:
            ValueError: `units` is not an integer, or is below 1.
        """
        super().__init__(**kwargs)
        self.units = check_positive_int("units", units)
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Create the variables.

        Raises:
            ValueError: The size of the last axis is unknown, or does not fit.
        """
        inputs = input_shape[-1]
        if inputs is None:
            raise ValueError(
                f"layer {self.name!r}: the last axis of the input shape {tuple(input_shape)} is "
                "unknown. Give it a size, as in keras.Input((8,))."
            )
        self.build_kernel(inputs)
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: inputs})
        self.built = True

    def build_kernel(self, inputs: int) -> None:
        """Create the variables of `multiply`, for that many inputs."""
        raise NotImplementedError

    def multiply(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the product of `[rows, ..., inputs]` and the kernel: `[rows, ..., units]`."""
        raise NotImplementedError

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return outputs `[rows, ..., units]`."""
        outputs = self.multiply(inputs)
        if self.bias is not None:
            outputs = keras.ops.add(outputs, self.bias)
        return self.activation(outputs)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """Return the input shape with `units` as the last axis."""
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
        }
