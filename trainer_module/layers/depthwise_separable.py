"""A depthwise and a pointwise convolution, each normalised within the row."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.positive_int import check_positive_int
from trainer_module.common.tensors import Shape


@keras.saving.register_keras_serializable(package="trainer_module")
class DepthwiseSeparable(keras.layers.Layer):
    """Return a depthwise convolution, and of its result a pointwise one (1 x 1).

        [rows, height, width, channels] -> [rows, new height, new width, filters]

    Each is followed by a normalisation and the activation, as in MobileNet (Howard et al. 2017). It
    has channels * (kernel_size² + filters) kernel weights instead of channels * kernel_size² *
    filters. The normalisation uses one row alone, where MobileNet's uses the batch: a window of
    micro-batches therefore gives the update of the full batch.

    Example:
        inputs = keras.Input((32, 32, 3))
        hidden = DepthwiseSeparable(64, strides=2)(inputs)
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int = 3,
        *,
        strides: int = 1,
        padding: str = "same",
        activation: object = "relu",
        groups: int | None = None,
        **kwargs: object,
    ) -> None:
        """Create the layer; it has no variables before `build`.

        Args:
            filters: Number of output channels.
            kernel_size: Height and width of the depthwise kernel, in pixels.
            strides: Step of the depthwise kernel in both directions, in pixels.
            padding: "same" or "valid", as in keras.layers.Conv2D.
            activation: As in keras.layers.Dense; None: no activation.
            groups: None: normalise over the channels of each pixel (LayerNormalization). A number:
                normalise over all pixels and one of that many groups of channels
                (GroupNormalization); it has to divide the channels of the input and `filters`.
            **kwargs: Arguments of keras.layers.Layer.

        Raises:
            ValueError: A number is below 1, `padding` is unknown, or `groups` does not divide
                `filters`.
        """
        super().__init__(**kwargs)
        self.filters = check_positive_int("filters", filters)
        self.kernel_size = check_positive_int("kernel_size", kernel_size)
        self.strides = check_positive_int("strides", strides)
        if padding not in ("same", "valid"):
            raise ValueError(f'padding={padding!r}: use "same" or "valid".')
        self.padding = padding
        self.activation = keras.activations.get(activation)
        self.groups = None if groups is None else check_positive_int("groups", groups)
        self._check_groups(self.filters, "filters")
        # Biases would be redundant: each normalisation adds one.
        options = {"use_bias": False, "data_format": "channels_last", "dtype": self.dtype_policy}
        self.depthwise = keras.layers.DepthwiseConv2D(
            self.kernel_size, self.strides, padding, name="depthwise", **options
        )
        self.depthwise_norm = self._normalization("depthwise_norm")
        self.pointwise = keras.layers.Conv2D(self.filters, 1, name="pointwise", **options)
        self.pointwise_norm = self._normalization("pointwise_norm")

    def _normalization(self, name: str) -> keras.layers.Layer:
        if self.groups is None:
            return keras.layers.LayerNormalization(name=name, dtype=self.dtype_policy)
        return keras.layers.GroupNormalization(self.groups, name=name, dtype=self.dtype_policy)

    def _check_groups(self, channels: int, name: str) -> None:
        if self.groups is not None and channels % self.groups:
            raise ValueError(
                f"groups={self.groups} does not divide {name}={channels}: use a divisor of it."
            )

    def build(self, input_shape: Shape) -> None:
        """Create the variables.

        Raises:
            ValueError: The input is not a batch of images, or `groups` does not divide its
                channels.
        """
        if len(input_shape) != 4 or input_shape[-1] is None:
            raise ValueError(
                f"layer {self.name!r}: the input shape is {tuple(input_shape)}. Use [rows, height, "
                "width, channels] with a known number of channels."
            )
        self._check_groups(input_shape[-1], "channels")
        shape = input_shape
        for layer in (self.depthwise, self.depthwise_norm, self.pointwise, self.pointwise_norm):
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return images `[rows, new height, new width, filters]`."""
        hidden = self.activation(self.depthwise_norm(self.depthwise(inputs)))
        return self.activation(self.pointwise_norm(self.pointwise(hidden)))

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """Return the shape of the outputs."""
        shape = self.depthwise.compute_output_shape(input_shape)
        return tuple(self.pointwise.compute_output_shape(shape))

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "activation": keras.activations.serialize(self.activation),
            "groups": self.groups,
        }
