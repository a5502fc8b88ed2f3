"""A global batch cut into one contiguous part per replica."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def per_replica(batch: Any, strategy: tf.distribute.Strategy) -> Any:
    """Returns the batch with each tensor replaced by one part per replica.

    Rows stay in order; part sizes differ by at most one row, and are 0 where there are fewer rows
    than replicas. A batch that is distributed already, or a single replica, passes unchanged.

    Args:
        batch: Structure of tensors `[rows, ...]`; None passes.
        strategy: Who the parts are for.
    """
    replicas = strategy.num_replicas_in_sync
    tensors = [t for t in tf.nest.flatten(batch) if t is not None]
    if replicas == 1 or any(isinstance(t, tf.distribute.DistributedValues) for t in tensors):
        return batch

    def cut(tensor: Any) -> Any:
        if tensor is None:
            return None
        rows = tf.shape(tensor, out_type=tf.int64)[0]

        def part(context: Any) -> tf.Tensor:
            index = context.replica_id_in_sync_group
            return tensor[rows * index // replicas : rows * (index + 1) // replicas]

        return strategy.experimental_distribute_values_from_function(part)

    return tf.nest.map_structure(cut, batch)
