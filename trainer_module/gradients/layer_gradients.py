"""Per-example gradients of Dense layers and embeddings without materialising them; clipped sums.

The gradient of row i of a dense kernel is A_iᵀ D_i for the layer's inputs A_i `[places, inputs]`
and the gradients D_i `[places, units]` of its outputs before the activation. So its squared norm is
Σ_st (a_s · a_t)(d_s · d_t) (Goodfellow 2015, arXiv:1510.01799), and a weighted sum over rows is one
matrix product.

`ChunkGradients` holds those of the rows of a chunk, and materialises those of other layers. With
`clip_per_example`, d_i = Σ w over the values of row i (its weight, or its weighted tokens), and
∇l_i = ∇(Σ w l over the values of row i) / d_i, the gradient of a window is the sum

    gradients = Σ_i d_i ∇l_i min(1, c / ‖∇l_i‖)
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.common.layers import TableLookup, replaced_calls
from trainer_module.common.tensors import Tensors
from trainer_module.gradients.row_gradients import (
    chunk_function,
    has_fixed_shapes,
    number_rows,
    resolve_chunk_size,
    sum_chunks,
)
from trainer_module.losses.weighted_loss import LossSums
from trainer_module.window.describe import Description
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.micro_batch import (
    MicroBatchGradients,
    micro_batch_gradients,
    upcast_to_float32,
)
from trainer_module.window.spec import Batch, Placement, StepInputs, WindowSpec, placement_of
from trainer_module.window.trace import phase_scope

_LOOKUPS = (keras.layers.Embedding, TableLookup)


class _LayerGradients(NamedTuple):
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


def _supported_layers(model: keras.Model) -> list[keras.layers.Layer]:
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


class _LayerRecorder:
    """Records the calls of layers in the forward pass of one row, for `micro_batch_gradients`.

    The tape watches the outputs, not the variables: any gradient of the variables that it still has
    comes from other uses of them.

    Attributes:
        layers: The layers.
        elsewhere: Indices of layers that are called in a branch, loop or function too, where they
            compute as defined and are not recorded.
    """

    def __init__(self, layers: Sequence[keras.layers.Layer]):
        self.layers = layers
        self.elsewhere: set[int] = set()
        self._calls: list[tuple[int, tf.Tensor]] = []

    @contextlib.contextmanager
    def __call__(self, tape: tf.GradientTape) -> Iterator[list[tf.Tensor]]:
        """Record the calls in the block; yield their outputs before the activation."""
        graph = tf.compat.v1.get_default_graph()
        outputs: list[tf.Tensor] = []

        def recorded(index: int, layer: Any) -> Any:
            def call(inputs: Any, *arguments: Any, **named: Any) -> Any:
                if tf.compat.v1.get_default_graph() is not graph:
                    # A tf.function keeps its trace for later calls.
                    self.elsewhere.add(index)
                    return type(layer).call(layer, inputs, *arguments, **named)
                found, output, finish = _compute(layer, inputs)
                tape.watch(output)
                self._calls.append((index, found))
                outputs.append(output)
                return finish(output)

            return call

        with replaced_calls((x, recorded(i, x)) for i, x in enumerate(self.layers)):
            yield outputs

    def places(self, gradients: Sequence[Any]) -> list[tuple[tf.Tensor, tf.Tensor] | None]:
        """Return A `[places, inputs]`, or table rows, and D `[places, units]` of each layer."""
        found: list[list[Any]] = [[] for _ in self.layers]
        for (index, inputs), gradient in zip(self._calls, gradients, strict=True):
            if gradient is None:  # such as in a loop that TensorFlow vectorises
                self.elsewhere.add(index)
                continue
            d = upcast_to_float32(gradient)
            d = tf.reshape(d, [-1, d.shape[-1]])
            if isinstance(self.layers[index], _LOOKUPS):
                found[index].append((tf.reshape(inputs, [-1]), d))
            else:  # a Dense layer takes integers too
                a = tf.cast(inputs, d.dtype)
                found[index].append((tf.reshape(a, [-1, a.shape[-1]]), d))
        return [
            (tf.concat([a for a, _ in calls], 0), tf.concat([d for _, d in calls], 0))
            if calls and index not in self.elsewhere
            else None
            for index, calls in enumerate(found)
        ]


def _compute(layer: Any, inputs: Any) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Return inputs or rows of the table, outputs, and the function that the layer applies to them.

    The outputs are those of the layer's variables as constants.
    """
    ops = keras.ops

    def constant(variable: Any) -> tf.Tensor:
        return tf.stop_gradient(tf.convert_to_tensor(variable))

    if isinstance(layer, TableLookup):
        rows = layer.table_rows(inputs)
        outputs = ops.cast(ops.take(constant(layer.table), rows, axis=0), layer.compute_dtype)
        return rows, outputs, lambda x: ops.reshape(x, (-1, x.shape[1] * x.shape[2]))
    if isinstance(layer, keras.layers.Embedding):
        ids = ops.cast(inputs, "int32") if inputs.dtype not in (tf.int32, tf.int64) else inputs
        found = ops.take(constant(layer.embeddings), ids, axis=0)
        return tf.convert_to_tensor(ids), ops.cast(found, layer.compute_dtype), lambda x: x
    outputs = ops.matmul(inputs, constant(layer.kernel))
    if layer.use_bias:
        outputs = ops.add(outputs, constant(layer.bias))
    return tf.convert_to_tensor(inputs), outputs, layer.activation or (lambda x: x)


class ChunkGradients(NamedTuple):
    """w_i ∇l_i of the rows of a chunk.

    Attributes:
        layers: What determines the gradients of the layers that are not materialised.
        variables: All other trainable variables.
        gradients: Their gradients, `[rows, *variable.shape]`.
    """

    layers: Sequence[_LayerGradients]
    variables: Sequence[Any]
    gradients: Sequence[tf.Tensor]

    def norms(self, rows: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Return the norm of each row's gradient, `[rows]`."""
        squares = [tf.zeros([rows], dtype)]
        squares += [tf.cast(layer.squared_norms(), dtype) for layer in self.layers]
        for gradients in self.gradients:
            flat = tf.reshape(tf.cast(gradients, dtype), [tf.shape(gradients)[0], -1])
            squares.append(tf.reduce_sum(tf.square(flat), 1))
        # Rounding of a sum of products may leave less than 0.
        return tf.sqrt(tf.maximum(tf.add_n(squares), 0))

    def weighted_sums(self, factors: tf.Tensor) -> dict[int, tf.Tensor]:
        """Return Σ_i factors_i g_i by the id of the variable; no entry for an unused variable."""
        sums: dict[int, tf.Tensor] = {}
        for layer in self.layers:
            found = layer.weighted_sums(factors)
            sums |= {id(v): s for v, s in zip(variables_of(layer.layer), found, strict=True)}
        for variable, gradients in zip(self.variables, self.gradients, strict=True):
            sums[id(variable)] = tf.tensordot(factors, tf.cast(gradients, factors.dtype), 1)
        return sums


def layers_by_norm_identity(spec: WindowSpec, batch: Any) -> list[keras.layers.Layer]:
    """Return the layers for which `_LayerGradients` is exact in this model.

    A trace of one row shows whether the loss depends on all calls of a layer, and whether the
    layer's variables are used elsewhere too.
    """
    layers = _supported_layers(spec.model)
    owners = collections.Counter(id(v) for layer in layers for v in variables_of(layer))
    layers = [x for x in layers if all(owners[id(v)] == 1 for v in variables_of(x))]
    signature = tf.nest.map_structure(
        lambda t: None if t is None else tf.TensorSpec([1, *t.shape[1:]], t.dtype), batch
    )
    exact: list[keras.layers.Layer] = []

    def probe(*parts: Any) -> None:
        recorder = _LayerRecorder(layers)
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
    """

    def of_chunk(part: Any, inputs: StepInputs) -> tuple[LossSums, ChunkGradients]:
        def of_row(row: Any, number: tf.Tensor) -> list[tf.Tensor]:
            recorder = _LayerRecorder(layers)
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
        of_layers = [_LayerGradients(x, *pair) for x, pair in zip(layers, pairs, strict=True)]
        gradients = ChunkGradients(of_layers, others, found[2 * len(layers) :])
        return LossSums(numerator, denominator), gradients

    return of_chunk


@dataclasses.dataclass(frozen=True)
class _ClippedMicroBatch:
    """Replaces `micro_batch_gradients` in a window whose rows are clipped.

    Attributes:
        clip_norm: c.
        layers: Layers whose gradients are not materialised (see `layers_by_norm_identity`).
        others: All other trainable variables that the loss depends on.
        row_bytes: Estimate of the memory of one row, in bytes.
        chunk_size: Number of rows whose gradients are materialised at a time; None: all rows of a
            micro-batch.
    """

    clip_norm: float
    layers: Sequence[keras.layers.Layer]
    others: Sequence[Any]
    row_bytes: float
    chunk_size: int | None

    def __call__(
        self, spec: WindowSpec, batch: Batch, inputs: StepInputs, *, separate: bool
    ) -> MicroBatchGradients:
        """Return the sums of one micro-batch and their clipped gradients."""
        assert not separate
        variables = spec.model.trainable_variables
        dtype = sum_dtype(spec.model)
        limit = tf.constant(self.clip_norm, dtype)
        if inputs.loss_scale is not None:
            limit *= tf.cast(inputs.loss_scale, dtype)
        used = [v for v in variables if id(v) in self._used]

        of_rows = chunk_gradients(spec, batch, self.layers, self.others)

        def of_chunk(part: Any) -> list[tf.Tensor]:
            sums, gradients = of_rows(part, inputs)
            with phase_scope("backward"):
                norms = gradients.norms(tf.shape(part[1])[0], dtype)
                factors = _factors(norms, limit * tf.cast(sums.denominator, dtype))
                found = gradients.weighted_sums(factors)
                return [*map(tf.reduce_sum, sums), *(found[id(v)] for v in used)]

        data = number_rows(batch)
        known = tf.nest.flatten(batch.features)[0].shape[0]
        if self.chunk_size is None or (known is not None and known <= self.chunk_size):
            sums = of_chunk(data)
        else:
            specs = [(dtype, []), (dtype, []), *((dtype, list(v.shape)) for v in used)]
            sums = sum_chunks(of_chunk, data, specs, chunk_size=self.chunk_size)
        numerator, denominator, *found = sums
        rest = iter(found)
        return MicroBatchGradients(
            numerator=numerator,
            denominator=denominator,
            gradients=[next(rest) if id(v) in self._used else None for v in variables],
            added_loss=None,
            added_gradients=None,
        )

    @property
    def _used(self) -> set[int]:
        return {id(v) for layer in self.layers for v in variables_of(layer)} | set(
            map(id, self.others)
        )


def check_placement(model: keras.Model, clip_norm: float) -> None:
    """Raise ValueError for a model on several devices."""
    if type(placement_of(model)) is not Placement:
        raise ValueError(
            f"clip_per_example={clip_norm} with a model on several devices: the norm of a row's "
            "gradient needs all stages at once. Put the model on one device, or leave out "
            "clip_per_example; clip_norm is supported."
        )


def plan_clipping(
    spec: WindowSpec, batch: Batch, description: Description, clip_norm: float
) -> _ClippedMicroBatch:
    """Return how the micro-batches of a window are clipped.

    Raises:
        ValueError: The gradient of a row is not defined.
    """
    if description.outputs is not None:
        raise ValueError(
            f"clip_per_example={clip_norm} with outputs that have separate sums of weights: the "
            "gradient of a row is not defined. Give one sample weight per row for all outputs and "
            "no masks, or leave out clip_per_example."
        )
    if description.has_added_gradient is not None:
        raise ValueError(
            f"clip_per_example={clip_norm} with layers that call add_loss or have an "
            "activity_regularizer: these losses do not belong to a row. Add them to the loss "
            "function, use a kernel_regularizer, or leave out clip_per_example."
        )
    layers = layers_by_norm_identity(spec, batch)
    pairs = zip(spec.model.trainable_variables, description.has_gradient, strict=True)
    used = {id(v): v for v, has in pairs if has}
    layers = [x for x in layers if all(id(v) in used for v in variables_of(x))]
    covered = {id(v) for layer in layers for v in variables_of(layer)}
    others = [v for key, v in used.items() if key not in covered]
    gradients = sum(math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in others)
    row_bytes = description.bytes_per_row + 2 * gradients
    # XLA needs static shapes, which the last chunk of a loop does not have.
    is_whole = not others or spec.jit_compile
    size = None if is_whole else resolve_chunk_size("auto", lambda: row_bytes)
    return _ClippedMicroBatch(clip_norm, layers, others, row_bytes, size)


def _factors(norms: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Return min(1, limit / norm) of each row; 0 for a row without a weight.

    A norm that is not finite gives NaN, so that the window counts as not finite.
    """
    factors = tf.math.divide_no_nan(limits, tf.maximum(norms, limits))
    nan = tf.constant(float("nan"), norms.dtype)
    return tf.where(tf.math.is_finite(norms), factors, nan)
