"""The models that step time and memory are measured on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

Layers = keras.layers


class Workload(NamedTuple):
    """A model, its loss, and random rows for it.

    Attributes:
        build: Returns a new model; `model` also sets the seed.
        shape: Of one row's features.
        micro_batch_rows: Rows of one micro-batch.
        loss: Keras name.
    """

    build: Callable[[], keras.Model]
    shape: tuple[int, ...]
    micro_batch_rows: int
    loss: str = "mean_squared_error"

    def model(self) -> keras.Model:
        """Returns a model with the same weights each time."""
        keras.utils.set_random_seed(1)
        return self.build()

    def data(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns features `[rows, *shape]` and labels `[rows, 1]`, float32."""
        random = np.random.default_rng(0)
        features = random.normal(size=(rows, *self.shape)).astype(np.float32)
        weights = random.normal(size=(math.prod(self.shape), 1)) / math.sqrt(math.prod(self.shape))
        return features, np.tanh(features.reshape(rows, -1) @ weights).astype(np.float32)


def _mlp(columns: int, units: Sequence[int]) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        hidden: list[Any] = [Layers.Dense(n, activation="relu") for n in units]
        return keras.Sequential([keras.Input((columns,)), *hidden, Layers.Dense(1)])

    return build


def _convolution(side: int, filters: Sequence[int]) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        layers: list[Any] = [
            Layers.Conv2D(n, 3, padding="same", strides=1 if i == 0 else 2, activation="relu")
            for i, n in enumerate(filters)
        ]
        pooled = [Layers.GlobalAveragePooling2D(), Layers.Dense(1)]
        return keras.Sequential([keras.Input((side, side, 3)), *layers, *pooled])

    return build


def _transformer(length: int, width: int) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        tokens = keras.Input((length, width))
        attended = Layers.MultiHeadAttention(num_heads=4, key_dim=width // 4)(tokens, tokens)
        hidden = Layers.LayerNormalization()(Layers.Add()([tokens, attended]))
        wide = Layers.Dense(width)(Layers.Dense(4 * width, activation="gelu")(hidden))
        hidden = Layers.LayerNormalization()(Layers.Add()([hidden, wide]))
        return keras.Model(tokens, Layers.Dense(1)(Layers.GlobalAveragePooling1D()(hidden)))

    return build


def _recurrent(layer: type, length: int, columns: int, units: int) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        return keras.Sequential([keras.Input((length, columns)), layer(units), Layers.Dense(1)])

    return build


MODELS = {
    "small": Workload(_mlp(20, (64, 32)), (20,), 32),
    "medium": Workload(_mlp(256, (512, 512, 256)), (256,), 64),
    "convolution": Workload(_convolution(16, (16, 32, 64)), (16, 16, 3), 64),
    "transformer": Workload(_transformer(32, 64), (32, 64), 16),
}
# Whose gradients have a loop over 32 steps.
RECURRENT = {
    "lstm": Workload(_recurrent(Layers.LSTM, 32, 16, 64), (32, 16), 32),
    "gru": Workload(_recurrent(Layers.GRU, 32, 16, 64), (32, 16), 32),
}
# The same with half the rows in a micro-batch: what is done once for each weighs twice as much.
HALVED = {
    "convolution_32": MODELS["convolution"]._replace(micro_batch_rows=32),
    "transformer_8": MODELS["transformer"]._replace(micro_batch_rows=8),
}
# Whose activations are far larger than their weights.
LARGE_MODELS = {
    "convolution": Workload(_convolution(64, (32, 64, 64)), (64, 64, 3), 32),
    "transformer": Workload(_transformer(128, 128), (128, 128), 32),
}
# What keeps a GPU busy.
ON_GPU = {
    "convolution_64": LARGE_MODELS["convolution"]._replace(micro_batch_rows=128),
    "transformer_128": LARGE_MODELS["transformer"]._replace(micro_batch_rows=128),
}
TITLES = {
    "small": "small MLP",
    "medium": "medium MLP",
    "convolution": "convolution",
    "transformer": "transformer block",
    "lstm": "LSTM, 32 steps",
    "gru": "GRU, 32 steps",
    "convolution_32": "convolution, 32 rows a micro-batch",
    "transformer_8": "transformer block, 8 rows a micro-batch",
    "convolution_64": "convolution, 64 x 64, 128 rows a micro-batch",
    "transformer_128": "transformer block, 128 tokens, 128 rows a micro-batch",
}


def flat(model: keras.Model) -> np.ndarray:
    """Returns all trainable weights in one vector."""
    return np.concatenate(
        [np.ravel(keras.ops.convert_to_numpy(v)) for v in model.trainable_variables]
    )
