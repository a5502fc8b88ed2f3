"""Where the replicas of a strategy are."""

from __future__ import annotations

from typing import Literal

import tensorflow as tf

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


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Return the number of the strategy's replicas in this process."""
    return 1 if _is_default(strategy) else len(strategy.extended.worker_devices)


def replica_devices(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Return the device of each replica of this process: "CPU:0", "CPU:1", ... or "GPU:0", ....

    Raises:
        ValueError: The replicas are on another kind of device, or not in this process.
    """
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
