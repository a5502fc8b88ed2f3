"""Reduce sums over replicas, and apply one update on all replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from trainer_module.checks.optimizer import each_optimizer, is_several
from trainer_module.common.optional_leaves import present_leaves, with_leaves
from trainer_module.common.tensors import Gradient, Variable
from trainer_module.devices.replicas import is_multi_worker
from trainer_module.window.gradient_sum import GradientSum

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
    if is_multi_worker(tf.distribute.get_strategy()):
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
