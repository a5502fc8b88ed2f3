"""Where the replicas of a strategy are, and which rows of a global batch each of them gets."""

from __future__ import annotations

import functools
from typing import Literal, NamedTuple

import tensorflow as tf

from trainer_module.common.tensors import PerReplica, Tensors, map_present, present_leaves

DeviceKind = Literal["CPU", "GPU"]


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Return whether the strategy has replicas in other processes."""
    return isinstance(
        strategy, tf.distribute.MultiWorkerMirroredStrategy
    ) and strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


def replica_kind(strategy: tf.distribute.Strategy) -> DeviceKind:
    """Return the kind of device of the strategy's replicas."""
    if _is_default(strategy):
        return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return (
        "GPU" if any("GPU" in name.upper() for name in strategy.extended.worker_devices) else "CPU"
    )


@functools.cache
def gpu_memory() -> int:
    """Return the memory that TensorFlow may use of the smallest GPU, in bytes; 0 without GPUs."""
    if not tf.config.list_logical_devices("GPU"):
        return 0
    from tensorflow.python.client import device_lib  # no public function has it

    devices = device_lib.list_local_devices()
    return min(each.memory_limit for each in devices if each.device_type == "GPU")


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Return the number of the strategy's replicas in this process."""
    return 1 if _is_default(strategy) else len(strategy.extended.worker_devices)


def replica_devices(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Return the device of each replica of this process: "CPU:0", "CPU:1", ... or "GPU:0", ...."""
    if _is_default(strategy):
        return ("GPU:0",) if tf.config.list_logical_devices("GPU") else ("CPU:0",)
    specs = [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    names = tuple(f"{spec.device_type.upper()}:{spec.device_index}" for spec in specs)
    kinds = {name.partition(":")[0] for name in names}
    replicas = strategy.num_replicas_in_sync
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        replicas = len(names)
    if len(names) != replicas or kinds not in ({"CPU"}, {"GPU"}):
        raise ValueError(
            f"the strategy's {strategy.num_replicas_in_sync} replicas are on "
            f"{', '.join(sorted(set(names)))} of this process: only those of one process, all CPU "
            "or all GPU devices, are known here."
        )
    return names


def _is_default(strategy: tf.distribute.Strategy) -> bool:
    return type(strategy.extended).__name__ == "_DefaultDistributionExtended"


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
    numbers: list[int] = []

    def number(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        numbers.append(int(context.replica_id_in_sync_group))
        return tf.zeros([])

    strategy.experimental_distribute_values_from_function(number)
    return Replicas(min(numbers), max(numbers) + 1, total)


def replica_index() -> tf.Tensor | int:
    """Return the number of this replica among all; 0 outside of `strategy.run`."""
    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


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
    start = 0 if share is None else replicas_here(strategy).cut(share.rows)[0]

    def cut(tensor: tf.Tensor) -> PerReplica:
        rows = tf.shape(tensor, out_type=tf.int64)[0] if share is None else share.rows

        def part(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            index = context.replica_id_in_sync_group
            begin, end = rows * index // replicas, rows * (index + 1) // replicas
            return tensor[begin - start : end - start]

        return strategy.experimental_distribute_values_from_function(part)

    return map_present(cut, batch)
