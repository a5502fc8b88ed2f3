"""Hold the gradients of the rows of a chunk, without materialising those of some layers."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.gradients.layer_gradients import (
    LayerGradients,
    LayerRecorder,
    supported_layers,
    variables_of,
)
from trainer_module.gradients.row_gradients import chunk_function, has_fixed_shapes
from trainer_module.losses.weighted_loss import LossSums
from trainer_module.window.micro_batch import micro_batch_gradients
from trainer_module.window.spec import Batch, StepInputs, WindowSpec


class ChunkGradients(NamedTuple):
    """w_i ∇l_i of the rows of a chunk.

    Attributes:
        layers: What determines the gradients of the layers that are not materialised.
        variables: All other trainable variables.
        gradients: Their gradients, `[rows, *variable.shape]`.
    """

    layers: Sequence[LayerGradients]
    variables: Sequence[Any]
    gradients: Sequence[tf.Tensor]

    def norms(self, rows: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Return the norm of each row's gradient, `[rows]`.

        Args:
            rows: Number of rows, scalar.
            dtype: Dtype of the result.
        """
        squares = [tf.zeros([rows], dtype)]
        squares += [tf.cast(layer.squared_norms(), dtype) for layer in self.layers]
        for gradients in self.gradients:
            flat = tf.reshape(tf.cast(gradients, dtype), [tf.shape(gradients)[0], -1])
            squares.append(tf.reduce_sum(tf.square(flat), 1))
        # Rounding of a sum of products may leave less than 0.
        return tf.sqrt(tf.maximum(tf.add_n(squares), 0))

    def weighted_sums(self, factors: tf.Tensor) -> dict[int, tf.Tensor]:
        """Return Σ_i factors_i g_i by the id of the variable; no entry for an unused variable.

        Args:
            factors: `[rows]`, of the dtype of the sums.
        """
        sums: dict[int, tf.Tensor] = {}
        for layer in self.layers:
            found = layer.weighted_sums(factors)
            sums |= {id(v): s for v, s in zip(variables_of(layer.layer), found, strict=True)}
        for variable, gradients in zip(self.variables, self.gradients, strict=True):
            sums[id(variable)] = tf.tensordot(factors, tf.cast(gradients, factors.dtype), 1)
        return sums


def layers_by_norm_identity(spec: WindowSpec, batch: Any) -> list[keras.layers.Layer]:
    """Return the layers for which `LayerGradients` is exact in this model.

    A trace of one row shows whether the loss depends on all calls of a layer, and whether the
    layer's variables are used elsewhere too.
    """
    layers = supported_layers(spec.model)
    owners = collections.Counter(id(v) for layer in layers for v in variables_of(layer))
    layers = [x for x in layers if all(owners[id(v)] == 1 for v in variables_of(x))]
    signature = tf.nest.map_structure(
        lambda t: None if t is None else tf.TensorSpec([1, *t.shape[1:]], t.dtype), batch
    )
    exact: list[keras.layers.Layer] = []

    def probe(*parts: Any) -> None:
        recorder = LayerRecorder(layers)
        inputs = StepInputs(random_position=(0,))
        sums = micro_batch_gradients(spec, Batch(*parts), inputs, separate=False, record=recorder)
        pairs = zip(spec.model.trainable_variables, sums.gradients, strict=True)
        used = {id(v) for v, gradient in pairs if gradient is not None}
        for layer, places in zip(layers, recorder.places(sums.recorded), strict=True):
            if places is not None and used.isdisjoint(map(id, variables_of(layer))):
                exact.append(layer)

    # In XLA, TensorFlow vectorises a loop of one row too.
    compiled = tf.function(probe, autograph=False, jit_compile=spec.jit_compile)
    graph = compiled.get_concrete_function(*signature).graph
    # Rows with different numbers of places cannot be stacked.
    return exact if has_fixed_shapes(graph) else []


def chunk_gradients(
    spec: WindowSpec, batch: Tensors, layers: Sequence[keras.layers.Layer], others: Sequence[Any]
) -> Callable[[Any, StepInputs], tuple[LossSums, ChunkGradients]]:
    """Return a function of a chunk of rows that computes each row as a micro-batch of one row.

    So a layer's inputs and the gradients of its outputs are those of the row, whatever the model
    does with several rows.

    Args:
        spec: Model and loss.
        batch: Tensors `[rows, ...]` or None: features, labels and weights.
        layers: Some of `layers_by_norm_identity`.
        others: All other variables whose gradients are wanted.

    Returns:
        A function of `(batch, row numbers)` and the inputs of the rows, whose `random_position` the
        row's number is added to. It returns the sums of each row, `[rows]`, and their gradients.
    """

    def of_chunk(part: Any, inputs: StepInputs) -> tuple[LossSums, ChunkGradients]:
        def of_row(row: Any, number: tf.Tensor) -> list[tf.Tensor]:
            recorder = LayerRecorder(layers)
            of_this = inputs._replace(random_position=(*inputs.random_position, number))
            sums = micro_batch_gradients(
                spec, Batch(*row), of_this, separate=False, record=recorder
            )
            places = [tensor for pair in recorder.places(sums.recorded) for tensor in pair or ()]
            variables = spec.model.trainable_variables
            by_id = {id(v): g for v, g in zip(variables, sums.gradients, strict=True)}
            gradients = [
                tf.zeros(v.shape, v.dtype)
                if by_id[id(v)] is None
                else tf.convert_to_tensor(by_id[id(v)])
                for v in others
            ]
            return [*map(tf.reduce_sum, sums[:2]), *places, *gradients]

        numerator, denominator, *found = chunk_function(of_row, batch)[0](part)
        pairs = [found[2 * i : 2 * i + 2] for i in range(len(layers))]
        of_layers = [LayerGradients(x, *pair) for x, pair in zip(layers, pairs, strict=True)]
        gradients = ChunkGradients(of_layers, others, found[2 * len(layers) :])
        return LossSums(numerator, denominator), gradients

    return of_chunk
