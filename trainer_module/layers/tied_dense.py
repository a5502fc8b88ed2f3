"""An output layer that shares the matrix of an Embedding."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.tensors import Shape
from trainer_module.layers.dense_base import DenseBase


@keras.saving.register_keras_serializable(package="trainer_module")
class TiedDense(DenseBase):
    """Return `activation(x @ transpose(embeddings) + bias)`: one output per id of an Embedding.

        [rows, ..., output_dim] -> [rows, ..., input_dim]

    The matrix is one variable with two uses, and its gradient is the sum of both (Press and Wolf,
    "Using the output embedding to improve language models", 2017). In a `StagedModel`, both layers
    belong in one stage.

    Example:
        embedding = keras.layers.Embedding(1000, 64)
        hidden = keras.layers.LSTM(64, return_sequences=True)(embedding(ids))
        logits = TiedDense(embedding)(hidden)
    """

    def __init__(
        self,
        embedding: keras.layers.Embedding,
        *,
        activation: object = None,
        use_bias: bool = True,
        **kwargs: object,
    ) -> None:
        """Create the layer; it has no variables before `build`.

        Args:
            embedding: The layer that holds the matrix `[input_dim, output_dim]`. The model has to
                call it before this layer.
            activation: As in keras.layers.Dense; None: no activation.
            use_bias: Whether to add a bias `[input_dim]`, which starts at 0.
            **kwargs: Arguments of keras.layers.Layer.

        Raises:
            ValueError: `embedding` is not an Embedding layer.
        """
        if not isinstance(embedding, keras.layers.Embedding):
            raise ValueError(f"embedding={embedding!r}: use a keras.layers.Embedding.")
        super().__init__(embedding.input_dim, activation=activation, use_bias=use_bias, **kwargs)
        self.embedding = embedding

    def build_kernel(self, inputs: int) -> None:
        """Check that the inputs fit the matrix.

        Raises:
            ValueError: The number of inputs is not the Embedding's output_dim.
        """
        if inputs != self.embedding.output_dim:
            raise ValueError(
                f"layer {self.name!r}: its input has {inputs} values per row, and the Embedding "
                f"{self.embedding.name!r} has output_dim={self.embedding.output_dim}. Use a Dense "
                f"layer of {self.embedding.output_dim} units before it."
            )

    def multiply(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the products of the inputs and each row of the matrix.

        Raises:
            ValueError: The Embedding has not been called.
        """
        self._check_embedding()
        if getattr(self.embedding, "quantization_mode", None) is None:
            matrix = self.embedding.embeddings
        else:  # stored as integers: look up all rows, which gives the scaled values
            matrix = self.embedding(keras.ops.arange(self.units))
        matrix = keras.ops.cast(matrix, self.compute_dtype)
        return keras.ops.matmul(keras.ops.cast(inputs, matrix.dtype), keras.ops.transpose(matrix))

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """Return the input shape with one value per id as the last axis.

        Raises:
            ValueError: The Embedding has not been called.
        """
        self._check_embedding()  # also when Keras connects layers without a call
        return super().compute_output_shape(input_shape)

    def _check_embedding(self) -> None:
        if not self.embedding.built:
            raise ValueError(
                f"layer {self.name!r}: the model has not called the Embedding "
                f"{self.embedding.name!r} that it shares. Call it before this layer. `from_config` "
                "and `clone_model` do not share layers: copy the model through a .keras file."
            )

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        embedding = keras.saving.serialize_keras_object(self.embedding)
        # An Embedding that nothing else calls stays unbuilt, so that `multiply` can report it.
        embedding.pop("build_config", None)
        config = super().get_config()
        del config["units"]
        return {**config, "embedding": embedding}

    @classmethod
    def from_config(cls, config: dict[str, Json]) -> TiedDense:
        """Return a layer from the output of `get_config`."""
        embedding = keras.saving.deserialize_keras_object(config["embedding"])
        return super().from_config({**config, "embedding": embedding})
