"""Hold the gradients of the rows of a chunk, without materialising those of some layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.model import computes_in_float16
from trainer_module.checks.randomness import draws_random_numbers
from trainer_module.checks.state_updates import reject_updates
from trainer_module.gradients.layer_gradients import (
    LayerGradients,
    join_calls,
    recorded_calls,
    supported_layers,
    variables_of,
)
from trainer_module.losses.weighted_loss import LossSums, WeightedLoss, loss_sums
from trainer_module.window.spec import Batch, WindowSpec

# A prime that no other axis of a model has, to recognise the axis of rows.
_PROBE_ROWS = 104_729


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

    A trace shows whether a layer's calls have the rows on their first axis, whether the loss
    depends on their outputs, and whether the layer's variables are used elsewhere too.
    """
    if computes_in_float16(spec.model):
        return []
    layers = supported_layers(spec.model)
    owners: dict[int, int] = {}
    for layer in layers:
        for variable in variables_of(layer):
            owners[id(variable)] = owners.get(id(variable), 0) + 1
    layers = [x for x in layers if all(owners[id(v)] == 1 for v in variables_of(x))]
    signature = tf.nest.map_structure(
        lambda t: None if t is None else tf.TensorSpec([_PROBE_ROWS, *t.shape[1:]], t.dtype), batch
    )
    exact: list[keras.layers.Layer] = []

    def probe(*parts: Any) -> None:
        graph = tf.compat.v1.get_default_graph()
        with tf.GradientTape(persistent=True) as tape:
            sums, calls = _forward(spec, Batch(*parts), layers, tape)
            total = tf.reduce_sum(sums.numerator)
        for index, layer in enumerate(layers):
            fits = all(
                tensor.graph is graph and tensor.shape.rank and tensor.shape[0] == _PROBE_ROWS
                for call in calls[index]
                for tensor in call
            )
            elsewhere = tape.gradient(total, [v.value for v in variables_of(layer)])
            # In a loop that TensorFlow vectorises, the outputs are not those that the loss uses.
            found = tape.gradient(total, [call.outputs for call in calls[index]]) if fits else []
            is_used = all(gradient is not None for gradient in found)
            if fits and is_used and all(gradient is None for gradient in elsewhere):
                exact.append(layer)

    traced = tf.function(probe, autograph=False).get_concrete_function(*signature)
    # Each row needs the same random numbers as in `per_example_gradients`.
    return [] if draws_random_numbers(traced.graph) else exact


def sums_by_row(spec: WindowSpec, batch: Any) -> bool:
    """Return whether the loss has a sum for each row, so that `layer_gradients` returns them."""
    if not isinstance(spec.loss_fn, WeightedLoss) or len(spec.loss_fn.terms) != 1:
        return False
    signature = tf.nest.map_structure(
        lambda t: None if t is None else tf.TensorSpec([_PROBE_ROWS, *t.shape[1:]], t.dtype), batch
    )

    def probe(*parts: Any) -> tf.Tensor:
        return _forward(spec, Batch(*parts), [], tf.GradientTape(), by_row=True)[0].denominator

    traced = tf.function(probe, autograph=False).get_concrete_function(*signature)
    return tuple(traced.structured_outputs.shape) == (_PROBE_ROWS,)


def layer_gradients(
    spec: WindowSpec, batch: Batch, layers: Sequence[keras.layers.Layer], *, by_row: bool = False
) -> tuple[LossSums, list[LayerGradients]]:
    """Return the sums of the loss, and what determines the gradients of layers.

    Args:
        spec: Model and loss.
        batch: Rows of a chunk.
        layers: Some of `layers_by_norm_identity`.
        by_row: Whether to return the sums of each row, `[rows]`; only if `sums_by_row` is true.
    """
    with tf.GradientTape() as tape:
        sums, calls = _forward(spec, batch, layers, tape, by_row=by_row)
        total = tf.reduce_sum(sums.numerator)
    outputs = [[call.outputs for call in calls[i]] for i in range(len(layers))]
    gradients = tape.gradient(total, outputs)
    joined = [join_calls(x, calls[i], gradients[i]) for i, x in enumerate(layers)]
    return sums, [each for each in joined if each is not None]


def _forward(
    spec: WindowSpec,
    batch: Batch,
    layers: Sequence[keras.layers.Layer],
    tape: tf.GradientTape,
    *,
    by_row: bool = False,
) -> tuple[LossSums, dict[int, Any]]:
    scope = keras.StatelessScope([], collect_losses=True, initialize_variables=False)
    with recorded_calls(layers, tape) as calls, scope:
        outputs = spec.model(batch.features, training=True)
    if by_row:
        assert isinstance(spec.loss_fn, WeightedLoss)
        sums = spec.loss_fn.row_sums(batch.labels, outputs, batch.sample_weight)
    else:
        sums = loss_sums(spec.loss_fn, batch.labels, outputs, batch.sample_weight)
    seeds = [v for v in spec.model.variables if v.name == "seed_generator_state"]
    reject_updates(spec.model, scope, [], seeds)
    return sums, calls
