"""Split a global batch into one contiguous part per replica, in one or several processes."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from trainer_module.common.optional_leaves import present_leaves, with_leaves
from trainer_module.common.tensors import PerReplica, Tensors
from trainer_module.window.spec import Batch, Index


class Replicas(NamedTuple):
    """The replicas of this process: `first` (inclusive) to `end` (exclusive) of `total`."""

    first: int
    end: int
    total: int

    def cut(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the first row and the end row of these replicas' parts, int64 scalars.

        Args:
            rows: Number of rows of the global batch, int64 scalar.
        """
        return rows * self.first // self.total, rows * self.end // self.total


class Share(NamedTuple):
    """The rows of a global batch for the replicas of this process.

    Attributes:
        batch: Structure of tensors `[rows of the share, ...]`.
        rows: Number of rows of the global batch, int64 scalar.
    """

    batch: Tensors
    rows: tf.Tensor


def replicas_here(strategy: tf.distribute.Strategy) -> Replicas:
    """Return the replicas of the strategy in this process; call it in cross-replica context."""
    total = strategy.num_replicas_in_sync
    if total == 1:
        return Replicas(0, 1, 1)
    found: list[int] = []

    def number(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        found.append(int(context.replica_id_in_sync_group))
        return tf.zeros([])

    strategy.experimental_distribute_values_from_function(number)
    return Replicas(min(found), max(found) + 1, total)


def is_distributed(batch: Tensors) -> bool:
    """Return whether a batch is already split into parts for the replicas."""
    kind = tf.distribute.DistributedValues
    return any(isinstance(tensor, kind) for tensor in present_leaves(batch))


def per_replica(batch: Tensors, strategy: tf.distribute.Strategy) -> Tensors:
    """Return the batch with each tensor split into one part per replica of this process.

    Rows stay in order. Part sizes differ by at most one row; a part is empty if there are fewer
    rows than replicas. A batch that is already distributed is returned unchanged, as is any batch
    for a single replica. A replica's part does not depend on the number of processes.

    Args:
        batch: Structure of tensors `[rows, ...]` or None with the rows of the global batch, or the
            `Share` of this process.
        strategy: The strategy with the replicas.
    """
    share = batch if isinstance(batch, Share) else None
    if share is not None:
        batch = share.batch
    replicas = strategy.num_replicas_in_sync
    if replicas == 1 or is_distributed(batch):
        return batch
    start: Index = 0 if share is None else replicas_here(strategy).cut(share.rows)[0]

    def cut(tensor: tf.Tensor) -> PerReplica:
        rows = tf.shape(tensor, out_type=tf.int64)[0] if share is None else share.rows

        def part(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            index = context.replica_id_in_sync_group
            begin, end = rows * index // replicas, rows * (index + 1) // replicas
            return tensor[begin - start : end - start]

        return strategy.experimental_distribute_values_from_function(part)

    return with_leaves(batch, map(cut, present_leaves(batch)))


def unpack_batch(batch: Tensors) -> Batch:
    """Return the parts of a batch; sample_weight is None for a batch of two parts.

    Raises:
        ValueError: The batch is not (features, labels) or (features, labels, sample_weight).
    """
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise ValueError(
            f"a batch is (features, labels) or (features, labels, sample_weight), got "
            f"{type(batch).__name__}"
            + (f" of {len(batch)}" if isinstance(batch, (tuple, list)) else "")
            + "."
        )
    features, labels, *rest = batch
    return Batch(features, labels, rest[0] if rest else None)
