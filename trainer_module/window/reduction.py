"""Sums over replicas, and one update by them on all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from trainer_module.common.several_optimizers import each_optimizer, is_several
from trainer_module.common.tensors import Gradient, Variable
from trainer_module.devices.multi_worker import is_multi_worker
from trainer_module.window.gradient_sum import GradientSum

# Between workers, smaller tensors travel together and larger ones alone: a collective takes about
# a millisecond however little it carries, and to put 48 MB into one tensor and take them out again
# took as long as sending them (docs/distributed.md).
_ALONE_BYTES = 1 << 20
_BUCKET_BYTES = 4 << 20
# Keras' name, in all releases that are allowed, for what sums over replicas inside `apply`.
_SUM_OF_KERAS = "_all_reduce_sum_gradients"


def sum_over_replicas(local: GradientSum) -> GradientSum:
    """Returns the sums of all replicas, on each; called inside `strategy.run`.

    Raises:
        ValueError: Called outside.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            "sum_over_replicas is called in cross-replica context: call it inside the function "
            "that strategy.run runs on each replica."
        )
    flat = [tensor for tensor in tf.nest.flatten(local) if tensor is not None]
    places = [list(range(len(flat)))]
    if is_multi_worker(tf.distribute.get_strategy()):
        places = buckets(flat)
    reduced: dict[int, tf.Tensor] = {}
    for bucket in places:
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [flat[place] for place in bucket])
        reduced.update(zip(bucket, sums, strict=True))
    in_order = iter([reduced[place] for place in range(len(flat))])
    return tf.nest.map_structure(lambda t: None if t is None else next(in_order), local)


def buckets(tensors: Sequence[tf.Tensor]) -> list[list[int]]:
    """Returns the places of tensors that one collective takes together, each place once.

    TensorFlow makes one tensor of all that it is given at a time, which have to be of one dtype.
    """
    found: list[list[int]] = []
    open_ones: dict[tf.DType, tuple[list[int], int]] = {}
    for place, tensor in enumerate(tensors):
        elements = tensor.shape.num_elements()
        size = _ALONE_BYTES if elements is None else elements * tensor.dtype.size
        if size >= _ALONE_BYTES:
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
    """Updates variables by g once, also on each of several replicas that have the same g.

    Inside `strategy.run` Keras' own `apply` sums over replicas: given the g of `mean_gradients` on
    N replicas, which is that of all rows already, it would apply N times g.

    Args:
        optimizer: Built on all trainable variables, in the strategy's scope.
        gradients: One per variable, equal on all replicas; None for a variable to leave alone.
        variables: The model's trainable variables.
    """
    pairs = [
        (None if g is None else tf.cast(g, v.dtype), v)
        for g, v in zip(gradients, variables, strict=True)
    ]
    context = tf.distribute.get_replica_context()
    optimizers = each_optimizer(optimizer)
    takes_sums = all(hasattr(type(each), _SUM_OF_KERAS) for each in optimizers)
    several_replicas = context is not None and context.num_replicas_in_sync > 1
    if context is not None and several_replicas and not takes_sums:
        # One replica gives g and the others 0, which is exact; g / replicas would round.
        is_first = tf.equal(context.replica_id_in_sync_group, 0)
        pairs = [
            (None if g is None else tf.where(is_first, g, tf.zeros_like(g)), v) for g, v in pairs
        ]
    if not is_several(optimizer):
        pairs = [(g, v) for g, v in pairs if g is not None]  # a MultiOptimizer leaves them out
    with contextlib.ExitStack() as stack:
        if several_replicas and takes_sums:
            stack.enter_context(_summed_already(optimizers))
        optimizer.apply([g for g, _ in pairs], [v for _, v in pairs])


@contextlib.contextmanager
def _summed_already(optimizers: Sequence[keras.optimizers.Optimizer]) -> Iterator[None]:
    """Lets optimizers take gradients as they are, where they would sum them over replicas.

    Between workers that would send all gradients a second time. Replicas run in turns until all
    are at the same merge, and the last merge of `apply` is after its last sum: so none of them
    leaves this block while another one is still to sum.
    """
    for each in optimizers:
        vars(each)[_SUM_OF_KERAS] = list
    try:
        yield
    finally:
        for each in optimizers:
            vars(each).pop(_SUM_OF_KERAS, None)
