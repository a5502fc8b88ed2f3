"""Compute products with the Hessian of the loss, and its largest eigenvalue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from trainer_module.checks.model import check_built
from trainer_module.checks.tf_errors import translate_tf_errors
from trainer_module.common.positive_int import check_positive_int
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.gradients.arguments import (
    check_seed,
    check_tolerance,
    checked_batch,
    to_direction,
)
from trainer_module.gradients.chunks import (
    row_specs,
    sum_chunks,
    sum_tensors_over_replicas,
)
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.micro_batch import micro_batch_gradients
from trainer_module.window.spec import Batch, StepInputs, WindowSpec


@translate_tf_errors()
def hessian_vector_product(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    vector: Sequence[Any],
    micro_batch_size: int,
    random_position: Sequence[Any] = (),
) -> list[tf.Tensor]:
    """Return H v for the Hessian H of the weighted mean loss Σ w_i l_i / Σ w_i.

    It is exact: a gradient of the gradient's product with v, summed over micro-batches and, inside
    `strategy.run`, over the rows of all replicas. Regularisers are not included. Layers run in
    training mode.

    Args:
        model: A built Keras model.
        loss_fn: See `TrainStep`.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]` or None.
        vector: v, one tensor per trainable variable, of its shape.
        micro_batch_size: Number of rows of one micro-batch; it bounds the memory.
        random_position: Integers from which dropout masks are derived, with the replica and the
            micro-batch's first row.

    Returns:
        One tensor per trainable variable, float32, or float64 for a float64 model.

    Raises:
        ValueError: `vector` does not fit the variables, micro_batch_size is below 1, tensors differ
            in their number of rows, a layer updates state when called, or the model overrides
            `compute_loss`.
    """
    size = check_positive_int("micro_batch_size", micro_batch_size)
    batch = checked_batch(
        model,
        loss_fn,
        features,
        labels,
        sample_weight,
        by="hessian_vector_product",
        random_position=random_position,
    )
    variables = model.trainable_variables
    directions = to_direction(vector, variables, name="vector")
    spec = WindowSpec(model, as_loss_function(loss_fn))
    dtype = sum_dtype(model)
    directions = [tf.cast(tensor, dtype) for tensor in directions]
    numbers = tf.range(tf.shape(tf.nest.flatten(batch)[0])[0])
    context = tf.distribute.get_replica_context()
    replica = 0 if context is None else context.replica_id_in_sync_group

    def products(part: Any) -> list[tf.Tensor]:
        """Return Σ w, then H v of Σ w l, with an axis of outputs if each has its own Σ w."""
        rows, numbers = part
        inputs = StepInputs(random_position=(*random_position, replica, numbers[0]))
        watched = [v.value for v in variables]
        with tf.GradientTape(persistent=True) as tape:
            separate = bool(outputs)
            sums = micro_batch_gradients(spec, Batch(*rows), inputs, separate=separate)
            dots = tf.zeros(outputs, dtype)
            for gradient, direction in zip(sums.gradients, directions, strict=True):
                if gradient is not None:
                    product = tf.cast(tf.convert_to_tensor(gradient), dtype) * direction
                    axes = list(range(len(outputs), product.shape.rank))
                    dots += tf.reduce_sum(product, axes)
            targets = tf.unstack(dots) if outputs else [dots]
        zero = tf.UnconnectedGradients.ZERO
        found = [tape.gradient(t, watched, unconnected_gradients=zero) for t in targets]
        dense = [[tf.cast(tf.convert_to_tensor(g), dtype) for g in each] for each in found]
        if outputs:
            stacked = [tf.stack(each) for each in zip(*dense, strict=True)]
        else:
            stacked = dense[0]
        return [tf.cast(sums.denominator, dtype), *stacked]

    outputs = _outputs(spec, batch)
    specs = [(dtype, outputs), *((dtype, [*outputs, *v.shape]) for v in variables)]
    sums = sum_chunks(products, (batch, numbers), specs, chunk_size=size)
    denominator, *sums = sum_tensors_over_replicas(sums)
    if not outputs:
        return [tf.math.divide_no_nan(total, denominator) for total in sums]
    return [
        tf.tensordot(tf.math.divide_no_nan(tf.ones([], dtype), denominator), total, 1)
        for total in sums
    ]


class Eigenvalue(NamedTuple):
    """The largest eigenvalue of the Hessian, the sharpness of the loss.

    Attributes:
        value: The eigenvalue.
        residual: ‖H v - value · v‖; some eigenvalue of H is at most this far from `value`.
        vector: v of norm 1, one array per trainable variable.
        iterations: Number of products with H.
    """

    value: float
    residual: float
    vector: list[np.ndarray]
    iterations: int


@translate_tf_errors()
def largest_eigenvalue(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    micro_batch_size: int,
    max_iterations: int = 50,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> Eigenvalue:
    """Return the largest eigenvalue of the Hessian of the weighted mean loss.

    Lanczos' method with full reorthogonalisation on exact products with H. It keeps one copy of the
    parameters per iteration in main memory, in float64. Call it outside `strategy.run`; with
    several replicas, give one tensor for each, as from `experimental_distribute_dataset`.

    Args:
        model: A built Keras model, created under the strategy.
        loss_fn: See `TrainStep`.
        features: Tensor or structure of tensors `[rows, ...]`, or values per replica.
        labels: Like `features`.
        sample_weight: `[rows]`, or values per replica, or None.
        micro_batch_size: Number of rows of one micro-batch; it bounds the memory.
        max_iterations: Largest number of products with H.
        tolerance: Stop at a residual of at most this share of the eigenvalue.
        seed: Seed of the first vector.

    Raises:
        ValueError: max_iterations is below 1, tolerance or seed is not a number, the model has no
            trainable variables, there are no rows, or a product is not finite. See also
            `hessian_vector_product`.
    """
    check_positive_int("micro_batch_size", micro_batch_size)
    max_iterations = check_positive_int("max_iterations", max_iterations)
    check_tolerance(tolerance)
    seed = check_seed(seed)
    check_built(model)
    variables = model.trainable_variables
    if not variables:
        raise ValueError(
            f"model {model.name!r} has no trainable variables: build it, or set layer.trainable "
            "of a layer to True."
        )
    strategy = tf.distribute.get_strategy()
    parts = tf.nest.flatten((features, labels, sample_weight))
    if not any(isinstance(part, tf.distribute.DistributedValues) for part in parts):
        features, labels, sample_weight = checked_batch(
            model, loss_fn, features, labels, sample_weight, by="largest_eigenvalue"
        )
        if next(t for t in tf.nest.flatten(features) if t is not None).shape[0] == 0:
            raise ValueError("features have 0 rows, whose mean loss has no Hessian: give rows.")
    shapes = [tuple(v.shape) for v in variables]
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes]
    dtype = sum_dtype(model).as_numpy_dtype

    @tf.function(autograph=False)
    def product(vector: list[tf.Tensor], features: Any, labels: Any, weights: Any) -> Any:
        def on_replica(features: Any, labels: Any, weights: Any) -> list[tf.Tensor]:
            return hessian_vector_product(
                model,
                loss_fn,
                features,
                labels,
                weights,
                vector=vector,
                micro_batch_size=micro_batch_size,
            )

        found = strategy.run(on_replica, args=(features, labels, weights))
        return [strategy.experimental_local_results(tensor)[0] for tensor in found]

    def arrays(flat: np.ndarray) -> list[np.ndarray]:
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    first = np.random.default_rng(seed % 2**64).normal(size=sum(sizes))
    basis = [first / np.linalg.norm(first)]
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        logging.log_every_n_seconds(
            logging.INFO,
            "Largest eigenvalue of the Hessian: product %d of at most %d",
            10,
            len(basis),
            max_iterations,
        )
        vector = [tf.constant(array.astype(dtype)) for array in arrays(basis[-1])]
        found = product(vector, features, labels, sample_weight)
        rest = np.concatenate([np.ravel(np.asarray(t, "float64")) for t in found])
        if not np.all(np.isfinite(rest)):
            raise ValueError(
                "the product of the Hessian and a vector is not finite: check features, labels and "
                f"weights of model {model.name!r} for NaN and infinity, or compute in float64."
            )
        diagonal.append(float(basis[-1] @ rest))
        for _ in range(2):  # once leaves rounding errors along the basis
            for known in basis:
                rest -= (known @ rest) * known
        length = float(np.linalg.norm(rest))
        matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        values, vectors = np.linalg.eigh(matrix)
        residual = length * abs(float(vectors[-1, -1]))
        is_done = residual <= tolerance * abs(values[-1]) or len(basis) == len(first)
        if is_done or len(basis) >= max_iterations:
            best = sum(c * b for c, b in zip(vectors[:, -1], basis, strict=True))
            return Eigenvalue(float(values[-1]), residual, arrays(np.asarray(best)), len(basis))
        beside.append(length)
        basis.append(rest / length)


def _outputs(spec: WindowSpec, batch: Any) -> list[int]:
    """Return [number of outputs] if each output has a separate Σ w_i, else []."""
    found: list[int] = []

    def probe(*parts: Any) -> None:
        inputs = StepInputs(random_position=(0,))
        sums = micro_batch_gradients(spec, Batch(*parts), inputs, separate=False)
        found[:] = sums.numerator.shape.as_list()

    tf.function(probe, autograph=False).get_concrete_function(*row_specs(batch))
    return found
