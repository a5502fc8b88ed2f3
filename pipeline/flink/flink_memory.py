"""How a Flink cluster on one machine divides its memory, in MB.

Flink divides a job's managed memory into as many parts as the job has steps that sort or group, 140
in StatisticsGen, and a record must fit into its part: one of StatisticsGen has the statistics of
all columns so far, some 30 KB for each float column. Few steps run at a time and the parts of the
others are idle, so managed memory is promised twice. The job server and the JobManager hold the
job's graph, in which Beam repeats the data of each step. Sizes are upper bounds: memory is taken
when it is used.
"""

from __future__ import annotations

from typing import NamedTuple

import psutil

from pipeline.common.errors import ConfigError
from trainer_module.devices.memory_budget import (
    format_bytes,
    free_machine_memory,
    parse_memory_budget,
)

OPTION = "--memory"
DEFAULT = "60%"
"""Share of the memory that is free when the cluster starts; Python workers need the rest."""

LEAST_MB = 5120
MOST_BY_DEFAULT_MB = 24 * 1024
MOST_TO_NAME = 0.8
"""Largest share of the machine's memory that an error proposes."""
PROMISES = 2
"""How often a MB of managed memory is promised."""

_LEAST_HEAP = 384
_FRAMEWORK_HEAP = _FRAMEWORK_OFF_HEAP = 128
_LEAST_OFF_HEAP, _METASPACE, _OVERHEAD = _FRAMEWORK_OFF_HEAP + 64, 256, 192
_LEAST_NETWORK, _MOST_NETWORK = 256, 512


class TaskManagerMemory(NamedTuple):
    """Sizes of one TaskManager, each in MB."""

    heap: int
    managed: int
    network: int
    off_heap: int
    metaspace: int = _METASPACE
    overhead: int = _OVERHEAD

    def jvm_options(self) -> tuple[str, ...]:
        """Return the JVM's options. Managed memory is not JVM memory."""
        return (
            f"-Xmx{self.heap}m",
            f"-XX:MaxDirectMemorySize={self.network + self.off_heap}m",
            f"-XX:MaxMetaspaceSize={self.metaspace}m",
        )

    def flink_options(self) -> dict[str, str]:
        """Return Flink's options."""
        sizes = {
            "framework.heap.size": _FRAMEWORK_HEAP,
            "task.heap.size": self.heap - _FRAMEWORK_HEAP,
            "framework.off-heap.size": _FRAMEWORK_OFF_HEAP,
            "task.off-heap.size": self.off_heap - _FRAMEWORK_OFF_HEAP,
            "managed.size": self.managed,
            "jvm-metaspace.size": self.metaspace,
            "jvm-overhead.min": self.overhead,
            "jvm-overhead.max": self.overhead,
            "network.min": self.network,
            "network.max": self.network,
        }
        return {f"taskmanager.memory.{name}": f"{size}mb" for name, size in sizes.items()}


class ClusterMemory(NamedTuple):
    """Sizes of a whole cluster, in MB."""

    total: int
    job_manager_heap: int
    job_server_heap: int
    task_manager: TaskManagerMemory


def cluster_memory(wanted: str = DEFAULT, *, task_managers: int) -> ClusterMemory:
    """Return the sizes of a cluster's parts.

    Args:
        wanted: Bytes, a size (`8GiB`) or a share of the free memory (`60%`).
        task_managers: Number of TaskManagers.

    Raises:
        ConfigError: `wanted` is invalid, less than a cluster needs, or more than the machine has;
            or it is a share and the machine has less free than a cluster needs.
    """
    free, whole = free_machine_memory(), machine_memory()
    try:
        budget = parse_memory_budget(int(wanted) if wanted.isdigit() else wanted)
    except ValueError as error:
        raise ConfigError(f"{OPTION}={wanted}: {error}.") from None
    total = budget.of(free) >> 20
    if budget.is_share and free >> 20 < LEAST_MB:
        raise ConfigError(
            f"Flink needs {LEAST_MB:,} MB, and {format_bytes(free)} are free on this machine. End "
            f"other programs, or name a size ({OPTION} {LEAST_MB >> 10}GiB): it is an upper bound, "
            "and small data need less."
        )
    if total > whole >> 20:
        raise ConfigError(
            f"{OPTION}={wanted} is more than this machine has: {format_bytes(whole)}, of which "
            f"{format_bytes(free)} are free, and the Python workers need some of it."
        )
    if wanted == DEFAULT:
        total = max(LEAST_MB, min(total, MOST_BY_DEFAULT_MB))
    if total < LEAST_MB:
        raise ConfigError(
            f"{OPTION}={wanted} gives Flink {total:,} MB of the {format_bytes(free)} that are free "
            f"on this machine, and it needs {LEAST_MB:,} MB: name a larger size ({OPTION} 6GiB)."
        )
    return divide(total, task_managers=task_managers)


def divide(total: int, *, task_managers: int) -> ClusterMemory:
    """Divide MB: about a fifth for the job server and the JobManager, the rest for TaskManagers.

    Most of a TaskManager's part is managed memory, for the records that are sorted. These pass
    through the heap one by one; messages to and from the workers wait in it, up to a hundred of
    each step.
    """
    # 512 MB were too little for the job server and a Transform of 195 columns.
    job_server, job_manager = max(1024, total // 8), max(512, total // 12)
    each = (total - job_server - job_manager) // task_managers
    network = min(max(_LEAST_NETWORK, each // 10), _MOST_NETWORK)
    # gRPC's buffers on the way to the workers: with 192 MB, a Transform of 300 columns ended in
    # "Direct buffer memory".
    off_heap = max(_LEAST_OFF_HEAP, each // 6)
    rest = each - network - off_heap - _METASPACE - _OVERHEAD
    heap = max(_LEAST_HEAP, rest // 3)
    one = TaskManagerMemory(heap, PROMISES * (rest - heap), network, off_heap)
    return ClusterMemory(total, job_manager, job_server, one)


def more(has: int, *, held: int) -> str:
    """Return a larger size for a cluster that had too little, as a value of the option.

    Args:
        has: MB that it was started with.
        held: Bytes that its processes use: free once they have ended.

    Returns:
        Twice as much, or the most that the machine has; "" if that is not more than `has`.
    """
    could = int(MOST_TO_NAME * (free_machine_memory() + held)) >> 30
    wanted = min(max(6, -(-has * 2 // 1024)), could)
    return f"{wanted}GiB" if wanted << 10 > has else ""


def machine_memory() -> int:
    """Return the memory of this machine with its swap space, in bytes."""
    return psutil.virtual_memory().total + psutil.swap_memory().total
