"""Sums over rows: the loss and the gradient of a window are computed from them.

They are reduced over replicas, and give the gradient noise scale. The n rows of a pass have the
gradient sum s = Σ_i u_i, where u_i = w_i ∇l_i. If rows are independent with mean G and covariance
Σ,

    E |s|² = n² |G|² + n tr Σ.

The passes k of a window (of all replicas) and the window as a whole give two such equations, whose
solution is unbiased for passes of any sizes:

    |G|² = (|Σ_k s_k|² - Σ_k |s_k|²) / (N² - Σ_k n_k²),    tr Σ = (Σ_k |s_k|² - |G|² Σ_k n_k²) / N

tr Σ / |G|² is the simple noise scale of McCandlish et al., "An Empirical Model of Large-Batch
Training" (2018), appendix A, in rows. Both estimates are noisy, so they are averaged over windows
before the division.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.compiled import each_optimizer, is_several
from trainer_module.common.tensors import (
    AddedLosses,
    Gradient,
    Variable,
    present_leaves,
    with_leaves,
)
from trainer_module.devices.replicas import is_multi_worker

if TYPE_CHECKING:
    from trainer_module.window.micro_batch import MicroBatchGradients
    from trainer_module.window.spec import WindowSpec


class GradientSum(NamedTuple):
    """Sums over the rows i of a batch; `first + second` are the sums over the rows of both.

        g = gradients / denominator + ∇R + ∇A          (see `mean_gradients`)
        A = added_loss / max(added_rows, 1)

    If each output has a separate Σ w_i (see `weighted_loss`), numerator, denominator and gradients
    have a first axis `[outputs]`, and the quotients are summed over it.

    Attributes:
        numerator: Σ w_i l_i, scalar. All sums are float32, or float64 for a float64 model.
        denominator: Σ w_i, scalar.
        rows: Number of rows regardless of their weights, scalar.
        gradients: Σ w_i ∇l_i, one dense tensor per trainable variable; None if the loss does not
            depend on the variable.
        added_loss: Sum of the losses that layers pass to `add_loss`, including activity
            regularisers, scalar. If they are means over rows, the losses of each pass are
            multiplied by its number of rows. None for a model without such losses.
        added_gradients: Gradients of `added_loss`, one per trainable variable; None for a model
            without such losses.
        added_rows: Number of rows to divide `added_loss` by, 0 if it is a sum over rows; None for a
            model without such losses.
        statistics: n, Σ x and Σ x² of each BatchNormalization layer over all values of a channel,
            float64 `[3, channels]`; empty without `batch_norm="ghost"`.
        squares: Σ_k |s_k|² and Σ_k n_k² over the passes k, `[2]`; None without
            `gradient_noise_scale` (see `noise_estimates`).
    """

    numerator: tf.Tensor
    denominator: tf.Tensor
    rows: tf.Tensor
    gradients: list[Gradient]
    added_loss: tf.Tensor | None = None
    added_gradients: list[Gradient] | None = None
    added_rows: tf.Tensor | None = None
    squares: tf.Tensor | None = None
    statistics: tuple[tf.Tensor, ...] = ()

    def __add__(self, other: GradientSum) -> GradientSum:  # pyright: ignore
        """Return the sums over the rows of both operands, of the same model and loss."""
        return tf.nest.map_structure(lambda a, b: None if a is None else a + b, self, other)


def sum_dtype(model: keras.Model) -> tf.DType:
    """Return float64 if a trainable variable is float64, else float32: the dtype of the sums."""
    wide = any(variable.dtype == "float64" for variable in model.trainable_variables)
    return tf.float64 if wide else tf.float32


def default_added_losses(model: keras.Model) -> AddedLosses:
    """Return whether activity regularisers are a mean or a sum over rows in this Keras release.

    The first releases of Keras 3 sum over rows; later ones divide by the number of rows. For a
    model without activity regularisers the result is "mean", which is also exact for losses that
    do not depend on the batch.
    """
    layers = model._flatten_layers()
    if not any(layer.activity_regularizer is not None for layer in layers):
        return "mean"
    return "mean" if _keras_divides_by_rows() else "sum"


@functools.cache
def _keras_divides_by_rows() -> bool:
    with tf.init_scope():
        layer = keras.layers.Activation("linear", activity_regularizer=keras.ops.sum)
        layer(tf.ones([2, 1]))
        return float(layer.losses[0]) == 1.0


def add_pass(
    total: GradientSum,
    part: MicroBatchGradients,
    rows: tf.Tensor | int,
    spec: WindowSpec,
    measures_noise: tf.Tensor | None,
) -> GradientSum:
    """Return the sums of a pass of so many rows added to a total."""
    dtype = total.numerator.dtype
    rows = tf.cast(rows, total.rows.dtype)
    added, added_gradients = total.added_loss, total.added_gradients
    added_rows = total.added_rows
    if added is not None and added_gradients is not None:
        assert part.added_loss is not None
        assert part.added_gradients is not None
        assert added_rows is not None
        is_mean = spec.added_losses == "mean"
        factor = rows if is_mean else tf.ones([], dtype)
        added_rows += rows if is_mean else tf.zeros([], dtype)
        added += tf.cast(part.added_loss, dtype) * factor
        accumulate = functools.partial(_accumulate, factor=factor)
        added_gradients = spec.placement.map(accumulate, added_gradients, part.added_gradients)
    squares = total.squares
    if squares is not None and measures_noise is not None:
        squares += _pass_squares(part.gradients, rows, measures_noise, squares.dtype)
    return GradientSum(
        numerator=total.numerator + tf.cast(part.numerator, dtype),
        denominator=total.denominator + tf.cast(part.denominator, dtype),
        rows=total.rows + rows,
        gradients=spec.placement.map(_accumulate, total.gradients, part.gradients),
        added_loss=added,
        added_gradients=added_gradients,
        added_rows=added_rows,
        squares=squares,
        statistics=tuple(map(tf.add, total.statistics, part.statistics)),
    )


def _accumulate(
    total: tf.Tensor | None, gradient: Gradient, factor: tf.Tensor | None = None
) -> tf.Tensor | None:
    if total is None:
        return None
    indexed = isinstance(gradient, tf.IndexedSlices)

    def term(values: tf.Tensor) -> tf.Tensor:
        values = tf.cast(values, total.dtype)
        if values.shape.rank == total.shape.rank and not indexed:
            # The trace loses axes of size 1 of a kernel that was multiplied with rows of sequences.
            values.set_shape(total.shape)
        return values if factor is None else values * tf.cast(factor, total.dtype)

    if not indexed:
        return total + term(tf.convert_to_tensor(gradient))
    table, looked_up = total.shape[0], gradient.indices.shape[0]
    if looked_up is not None and table <= looked_up:
        # For a small table, adding the whole table is several times as fast as a scatter.
        return total + term(_table(gradient, total))
    # Add only the rows that the micro-batch looked up: the table may be far larger.
    return tf.tensor_scatter_nd_add(total, gradient.indices[:, tf.newaxis], term(gradient.values))


def _table(gradient: Gradient, total: tf.Tensor) -> tf.Tensor:
    """Return the gradients of looked-up rows as a dense table in the dtype of the sums."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.cast(gradient, total.dtype)
    values = tf.cast(gradient.values, total.dtype)
    return tf.math.unsorted_segment_sum(values, gradient.indices, total.shape[0])


def with_tables(part: MicroBatchGradients, zeros: GradientSum) -> MicroBatchGradients:
    """Return a window's only pass with dense gradients: faster than a scatter into zeros."""

    def tables(gradients: list[Gradient], zeros: list[Gradient]) -> list[Gradient]:
        pairs = zip(gradients, zeros, strict=True)
        return [None if zero is None else _table(g, zero) for g, zero in pairs]

    if part.added_gradients is not None and zeros.added_gradients is not None:
        part = part._replace(added_gradients=tables(part.added_gradients, zeros.added_gradients))
    return part._replace(gradients=tables(part.gradients, zeros.gradients))


def _pass_squares(
    gradients: Sequence[Gradient], rows: tf.Tensor, is_measured: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Return |s_k|² and n_k² of one pass, `[2]`; zeros if the window is not measured."""

    def squares() -> tf.Tensor:
        rows_squared = tf.square(tf.cast(rows, dtype))
        return tf.stack([_squared_norm(gradients, dtype), rows_squared])

    return tf.cond(is_measured, squares, lambda: tf.zeros([2], dtype))


def _squared_norm(gradients: Sequence[Gradient], dtype: tf.DType) -> tf.Tensor:
    """Return the squared global norm of gradients, computed in a dtype; scalar."""
    # A row of an embedding that several examples looked up is several slices: add them up first.
    dense = [tf.cast(tf.convert_to_tensor(g), dtype) for g in gradients if g is not None]
    return tf.add_n([tf.reduce_sum(tf.square(g)) for g in dense])


def noise_of_window(total: GradientSum, loss_scale: tf.Tensor | None = None) -> tf.Tensor:
    """Return |G|² and tr Σ of a measured window, `[2]`; NaN if all rows were in one pass.

    Raises:
        ValueError: Outputs have separate sums of weights.
    """
    if total.denominator.shape.rank:
        raise ValueError(
            "gradient_noise_scale with outputs that have separate sample weights: the gradient of "
            "a row is not defined. Give one sample weight per row for all outputs, or leave out "
            "gradient_noise_scale."
        )
    assert total.squares is not None
    dtype = total.squares.dtype
    squares, rows_squared = tf.unstack(total.squares)
    rows = tf.cast(total.rows, dtype)
    divisor = tf.square(rows) - rows_squared
    nothing = tf.constant(float("nan"), dtype)
    signal = (_squared_norm(total.gradients, dtype) - squares) / divisor
    noise = (squares - signal * rows_squared) / rows
    is_known = tf.logical_and(rows_squared > 0, divisor > 0)
    estimates = tf.where(is_known, tf.stack([signal, noise]), nothing)
    return estimates if loss_scale is None else estimates / tf.cast(loss_scale, dtype) ** 2


# Between workers, small tensors share a collective and each large tensor has a separate one. A
# collective takes about 1 ms even for little data, and packing 48 MB into one tensor and unpacking
# it took as long as sending it (docs/distributed.md).
_SEPARATE_BYTES = 1 << 20
_BUCKET_BYTES = 4 << 20
# The Keras method that sums over replicas inside `apply`, in all supported releases.
_KERAS_SUM_METHOD = "_all_reduce_sum_gradients"


def sum_over_replicas(local: GradientSum) -> GradientSum:
    """Return the sums over all replicas, on each replica.

    Call it inside `strategy.run`.

    Args:
        local: Sums over the rows of this replica.

    Raises:
        ValueError: The call is in cross-replica context.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            "sum_over_replicas is called in cross-replica context: call it inside the function "
            "that strategy.run runs on each replica."
        )
    flat = present_leaves(local)
    places = [list(range(len(flat)))]
    # NCCL concatenates the tensors of a collective, and the sums of statistics are float64.
    if len({tensor.dtype for tensor in flat}) > 1 or is_multi_worker(tf.distribute.get_strategy()):
        places = buckets(flat)
    reduced: dict[int, tf.Tensor] = {}
    for bucket in places:
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [flat[place] for place in bucket])
        reduced.update(zip(bucket, sums, strict=True))
    return with_leaves(local, [reduced[place] for place in range(len(flat))])


def buckets(tensors: Sequence[tf.Tensor]) -> list[list[int]]:
    """Return the indices of the tensors of each collective; each index occurs once.

    TensorFlow concatenates the tensors of one collective, so all of them have the same dtype.
    """
    found: list[list[int]] = []
    open_ones: dict[tf.DType, tuple[list[int], int]] = {}
    for place, tensor in enumerate(tensors):
        elements = tensor.shape.num_elements()
        size = _SEPARATE_BYTES if elements is None else elements * tensor.dtype.size
        if size >= _SEPARATE_BYTES:
            found.append([place])
            continue
        bucket, held = open_ones.get(tensor.dtype, ([], _BUCKET_BYTES))
        if held + size > _BUCKET_BYTES:
            bucket, held = [], 0
            found.append(bucket)
        bucket.append(place)
        open_ones[tensor.dtype] = bucket, held + size
    return found


def apply_gradients(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
) -> None:
    """Update the variables by g once, also where several replicas have the same g.

    Inside `strategy.run`, `apply` of Keras sums over replicas. The g of `mean_gradients` is the
    gradient of all rows already, so on N replicas Keras would apply N times g.

    Args:
        optimizer: Built on all trainable variables, in the strategy's scope.
        gradients: One per variable, equal on all replicas; None leaves the variable unchanged.
        variables: The model's trainable variables.
    """
    pairs = [
        (None if g is None else tf.cast(g, v.dtype), v)
        for g, v in zip(gradients, variables, strict=True)
    ]
    context = tf.distribute.get_replica_context()
    optimizers = each_optimizer(optimizer)
    takes_sums = all(hasattr(type(each), _KERAS_SUM_METHOD) for each in optimizers)
    several_replicas = context is not None and context.num_replicas_in_sync > 1
    if context is not None and several_replicas and not takes_sums:
        # One replica contributes g and the others 0, which is exact; g / replicas would round.
        is_first = tf.equal(context.replica_id_in_sync_group, 0)
        pairs = [
            (None if g is None else tf.where(is_first, g, tf.zeros_like(g)), v) for g, v in pairs
        ]
    if not is_several(optimizer):
        pairs = [(g, v) for g, v in pairs if g is not None]  # a MultiOptimizer skips None
    with contextlib.ExitStack() as stack:
        if several_replicas and takes_sums:
            stack.enter_context(_without_keras_sum(optimizers))
        optimizer.apply([g for g, _ in pairs], [v for _, v in pairs])


@contextlib.contextmanager
def _without_keras_sum(optimizers: Sequence[keras.optimizers.Optimizer]) -> Iterator[None]:
    """Prevent optimizers from summing gradients over replicas.

    Between workers, summing would send all gradients a second time. Replicas run in turns until
    all are at the same merge, and the last merge of `apply` is after its last sum. So no replica
    leaves this block before the others have reached their last sum.
    """
    for each in optimizers:
        vars(each)[_KERAS_SUM_METHOD] = list
    try:
        yield
    finally:
        for each in optimizers:
            vars(each).pop(_KERAS_SUM_METHOD, None)
