"""Per-example gradients of Dense layers and embeddings without materialising them.

The gradient of row i of a dense kernel is A_iᵀ D_i for the layer's inputs A_i `[places, inputs]`
and the gradients D_i `[places, units]` of its outputs before the activation. So its squared norm is
Σ_st (a_s · a_t)(d_s · d_t) (Goodfellow 2015, arXiv:1510.01799), and a weighted sum over rows is one
matrix product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.common.replaced_calls import replaced_calls
from trainer_module.common.table_lookup import TableLookup
from trainer_module.window.micro_batch import upcast_to_float32

_LOOKUPS = (keras.layers.Embedding, TableLookup)


class LayerCall(NamedTuple):
    """One call of a layer: its inputs, or rows of its table, and outputs before the activation."""

    inputs: tf.Tensor
    outputs: tf.Tensor


class LayerGradients(NamedTuple):
    """What determines the gradients of one layer's variables, for each row of a chunk.

    Attributes:
        layer: A Dense layer, an Embedding, or a TableLookup such as PackedEmbedding.
        inputs: A `[rows, places, inputs]`, or rows of a table, int `[rows, places]`; places of all
            calls.
        gradients: D `[rows, places, units]`.
    """

    layer: keras.layers.Layer
    inputs: tf.Tensor
    gradients: tf.Tensor

    def squared_norms(self) -> tf.Tensor:
        """Return the squared norm of each row's gradient, over all variables of the layer."""
        a, d = self.inputs, self.gradients
        if isinstance(self.layer, _LOOKUPS):
            same = tf.cast(a[:, :, tf.newaxis] == a[:, tf.newaxis, :], d.dtype)
            return tf.einsum("ist,isk,itk->i", same, d, d)
        places, size = a.shape[1], a.shape[2] * d.shape[2]
        if places == 1:
            kernel = tf.reduce_sum(a * a, [1, 2]) * tf.reduce_sum(d * d, [1, 2])
        elif places is not None and places * (a.shape[2] + d.shape[2]) < size:
            products = tf.matmul(a, a, transpose_b=True) * tf.matmul(d, d, transpose_b=True)
            kernel = tf.reduce_sum(products, [1, 2])
        else:  # the kernel's gradient is smaller than the products of all pairs of places
            kernel = tf.reduce_sum(tf.square(tf.matmul(a, d, transpose_a=True)), [1, 2])
        if not self.layer.use_bias:
            return kernel
        return kernel + tf.reduce_sum(tf.square(tf.reduce_sum(d, 1)), 1)

    def weighted_sums(self, factors: tf.Tensor) -> list[tf.Tensor]:
        """Return Σ_i factors_i g_i, one dense tensor per variable of `variables_of(layer)`."""
        a, d = self.inputs, self.gradients
        d *= tf.cast(factors, d.dtype)[:, tf.newaxis, tf.newaxis]
        flat = tf.reshape(d, [-1, d.shape[2]])
        if isinstance(self.layer, _LOOKUPS):
            (table,) = variables_of(self.layer)
            return [tf.math.unsorted_segment_sum(flat, tf.reshape(a, [-1]), table.shape[0])]
        kernel = tf.matmul(tf.reshape(a, [-1, a.shape[2]]), flat, transpose_a=True)
        return [kernel, tf.reduce_sum(flat, 0)] if self.layer.use_bias else [kernel]


def variables_of(layer: keras.layers.Layer) -> list[Any]:
    """Return the trainable variables of a supported layer, kernel before bias."""
    if isinstance(layer, keras.layers.Embedding):
        return [layer._embeddings]
    if isinstance(layer, TableLookup):
        return [layer.table]
    return [layer._kernel, layer.bias] if layer.use_bias else [layer._kernel]


def supported_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the trainable Dense layers and embeddings that compute as they are defined."""
    trained = {id(v) for v in model.trainable_variables}
    return [
        layer
        for layer in model._flatten_layers()
        if (
            type(layer) in (keras.layers.Dense, keras.layers.Embedding)
            or getattr(type(layer), "call", None) is TableLookup.call
        )
        and layer.built
        and "call" not in vars(layer)  # replaced by `recompute`, for example
        and not getattr(layer, "lora_enabled", False)
        and not getattr(layer, "quantization_mode", None)
        and all(id(v) in trained for v in variables_of(layer))
    ]


@contextlib.contextmanager
def recorded_calls(
    layers: Sequence[keras.layers.Layer], tape: tf.GradientTape
) -> Iterator[dict[int, list[LayerCall]]]:
    """Record the calls of layers, by index; the tape watches the outputs, not the variables.

    Any gradient of the layers' variables that the tape still has comes from other uses of them.
    """
    calls: dict[int, list[LayerCall]] = {index: [] for index in range(len(layers))}
    with replaced_calls(
        (layer, _recorder(layer, tape, calls[index])) for index, layer in enumerate(layers)
    ):
        yield calls


def join_calls(
    layer: keras.layers.Layer, calls: Sequence[LayerCall], gradients: Sequence[Any]
) -> LayerGradients | None:
    """Return the gradients of a layer that was called; None if the loss depends on no call."""
    inputs, outputs = [], []
    for call, gradient in zip(calls, gradients, strict=True):
        if gradient is None:
            continue
        of_ids = isinstance(layer, _LOOKUPS)
        outputs.append(_with_one_axis_of_places(upcast_to_float32(gradient), 1))
        # A Dense layer takes integers too.
        found = call.inputs if of_ids else tf.cast(call.inputs, outputs[-1].dtype)
        inputs.append(_with_one_axis_of_places(found, 0 if of_ids else 1))
    if not outputs:
        return None
    return LayerGradients(layer, tf.concat(inputs, 1), tf.concat(outputs, 1))


def _with_one_axis_of_places(tensor: tf.Tensor, last: int) -> tf.Tensor:
    """Return `[rows, places, ...]` with `last` axes after the places."""
    rest = tensor.shape[tensor.shape.rank - last :]
    between = tensor.shape[1 : tensor.shape.rank - last].num_elements()
    places = -1 if between is None else between
    return tf.reshape(tensor, [tf.shape(tensor)[0], places, *rest])


def _recorder(layer: Any, tape: tf.GradientTape, calls: list[LayerCall]) -> Any:
    ops = keras.ops

    def constant(variable: Any) -> tf.Tensor:
        return tf.stop_gradient(tf.convert_to_tensor(variable))

    def call_embedding(inputs: Any, **_: Any) -> Any:
        ids = ops.cast(inputs, "int32") if inputs.dtype not in (tf.int32, tf.int64) else inputs
        outputs = ops.cast(ops.take(constant(layer.embeddings), ids, axis=0), layer.compute_dtype)
        tape.watch(outputs)
        calls.append(LayerCall(tf.convert_to_tensor(ids), outputs))
        return outputs

    def call_table(ids: Any, **_: Any) -> Any:
        rows = layer.table_rows(ids)
        outputs = ops.cast(ops.take(constant(layer.table), rows, axis=0), layer.compute_dtype)
        tape.watch(outputs)
        calls.append(LayerCall(rows, outputs))
        return ops.reshape(outputs, (-1, outputs.shape[1] * outputs.shape[2]))

    def call_dense(inputs: Any, **_: Any) -> Any:
        outputs = ops.matmul(inputs, constant(layer.kernel))
        if layer.use_bias:
            outputs = ops.add(outputs, constant(layer.bias))
        tape.watch(outputs)
        calls.append(LayerCall(tf.convert_to_tensor(inputs), outputs))
        return outputs if layer.activation is None else layer.activation(outputs)

    if isinstance(layer, TableLookup):
        return call_table
    return call_embedding if isinstance(layer, keras.layers.Embedding) else call_dense
