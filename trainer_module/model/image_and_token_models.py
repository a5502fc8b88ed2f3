"""Networks of the default models that make one vector per row of a picture or of token ids."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from shared_core.feature_layout import ImageFeature, TokenFeature
from trainer_module.common.tensors import Json, Shape
from trainer_module.model.layers import PixelNormalization
from trainer_module.model.model_context import ModelContext
from trainer_module.options.task_options import ModelConfig

_LARGE = 64  # pixels of the shorter side from which the first convolution halves the picture


def pooled_features(context: ModelContext) -> list[tuple[keras.KerasTensor, keras.KerasTensor]]:
    """Return (input, vectors `[rows, size]`) of each feature of pictures or token ids.

    Raises:
        ValueError: `model.kind` does not take a feature, or there is no feature that it takes.
    """
    config, layout = context.config.model, context.layout
    found = []
    for feature in () if layout is None else (*layout.images, *layout.tokens):
        kind, what = "transformer", "token ids"
        if isinstance(feature, ImageFeature):
            kind, what = "conv", "pictures"
        if config.kind != kind:
            raise ValueError(
                f"trainer.model.kind={config.kind!r} does not take {what}, and transformed feature "
                f"{feature.name!r} has them: use kind: {kind}, or give trainer.model_fn."
            )
        if isinstance(feature, ImageFeature):
            found.append(_convolutions(feature, config))
        else:
            found.append(_transformer(feature, config))
    if config.kind != "mlp" and not found:
        what = "image" if config.kind == "conv" else "tokens"
        raise ValueError(
            f"trainer.model.kind={config.kind!r} has no feature to read: encode a column with "
            f"`encode: {{{what}: ...}}` in features, or use kind: mlp."
        )
    return found


def _convolutions(
    image: ImageFeature, config: ModelConfig
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Return pictures and their vectors `[rows, filters[-1]]`, by a residual network.

    Blocks are pre-activated (He et al., "Identity Mappings in Deep Residual Networks", 2016). All
    but the first halve height and width. GroupNormalization takes no statistics over rows.
    """
    layers = keras.layers
    pixels = keras.Input(image.shape, name=image.name, dtype="uint8")
    x = PixelNormalization(image.mean, image.variance, name=f"{image.name}_pixels")(pixels)
    strides = 2 if min(image.height, image.width) >= _LARGE else 1
    x = layers.Conv2D(config.filters[0], 3, strides, padding="same", use_bias=False)(x)
    for number, filters in enumerate(config.filters):
        inputs = keras.Input(x.shape[1:])
        strides = 2 if number else 1
        normal = _normalized(inputs, config)
        shortcut = inputs
        if filters != x.shape[-1] or strides > 1:
            # A convolution with these strides corrupts memory on a CPU (oneDNN) if the number of
            # rows is odd and there are at most 8 channels.
            shortcut = layers.AveragePooling2D(1, strides)(normal)
            shortcut = layers.Conv2D(filters, 1, use_bias=False)(shortcut)
        y = layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(normal)
        y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(_normalized(y, config))
        name = f"{image.name}_block_{number + 1}"  # one layer, which `recompute` can name
        x = keras.Model(inputs, layers.Add()([shortcut, y]), name=name)(x)
    return pixels, layers.GlobalAveragePooling2D()(_normalized(x, config))


def _normalized(x: keras.KerasTensor, config: ModelConfig) -> keras.KerasTensor:
    groups = math.gcd(x.shape[-1], 8)
    return keras.layers.Activation(config.activation)(keras.layers.GroupNormalization(groups)(x))


def _transformer(
    tokens: TokenFeature, config: ModelConfig
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Return token ids `[rows, length]` and their vectors `[rows, width]`, by pre-norm blocks.

    No token attends to padding, and the mean is over the tokens that exist, so that a row's vector
    does not depend on its padding.
    """
    assert tokens.vocabulary_size is not None
    layers = keras.layers
    ids = keras.Input((None,), name=tokens.name, dtype="int64")
    exists = keras.ops.not_equal(ids, 0)
    x = layers.Embedding(tokens.vocabulary_size, config.width, name=f"{tokens.name}_ids")(ids)
    x = AddPositions(tokens.max_length, name=f"{tokens.name}_positions")(x)
    for number in range(config.blocks):
        inputs = keras.Input((None, config.width)), keras.Input((None,), dtype="bool")
        attention = layers.MultiHeadAttention(
            config.heads, config.width // config.heads, dropout=config.dropout
        )
        normal = layers.LayerNormalization()(inputs[0])
        attended = attention(normal, normal, attention_mask=inputs[1][:, None, :])
        y = layers.Add()([inputs[0], layers.Dropout(config.dropout)(attended)])
        hidden = layers.Dense(4 * config.width, config.activation)(layers.LayerNormalization()(y))
        hidden = layers.Dropout(config.dropout)(layers.Dense(config.width)(hidden))
        name = f"{tokens.name}_block_{number + 1}"  # one layer, which `recompute` can name
        x = keras.Model(inputs, layers.Add()([y, hidden]), name=name)([x, exists])
    # In the dtype of the variables: a sum over hundreds of tokens needs more than 16 bits.
    wide = keras.config.dtype_policy().variable_dtype
    return ids, MaskedMean(dtype=wide)([layers.LayerNormalization()(x), exists])


@keras.saving.register_keras_serializable(package="trainer_module")
class AddPositions(keras.layers.Layer):
    """Add a learned vector per position: `[rows, length, width]`, length at most `max_length`."""

    def __init__(self, max_length: int, **kwargs: object) -> None:
        """Create the layer."""
        super().__init__(**kwargs)
        self.max_length = max_length

    def build(self, input_shape: Shape) -> None:
        """Create the vectors `[max_length, width]`."""
        shape = self.max_length, input_shape[-1]
        self.vectors = self.add_weight(shape=shape, initializer="uniform", name="vectors")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return the sums."""
        return x + self.vectors[: keras.ops.shape(x)[1]]

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "max_length": self.max_length}


@keras.saving.register_keras_serializable(package="trainer_module")
class MaskedMean(keras.layers.Layer):
    """Return the mean over axis 1 where a mask is true; 0 where it is nowhere true."""

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return means `[rows, width]` for [values `[rows, length, width]`, mask]."""
        values, mask = inputs
        weights = keras.ops.cast(mask, values.dtype)[..., None]
        count = keras.ops.maximum(keras.ops.sum(weights, axis=1), 1)
        return keras.ops.sum(values * weights, axis=1) / count
