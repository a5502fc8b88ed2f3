"""Plan the passes of a window: merge small micro-batches, and run several passes in parallel."""

from __future__ import annotations

import math
from typing import NamedTuple

from trainer_module.devices.replicas import DeviceKind


class Limits(NamedTuple):
    """Limits of a device kind for processing more than one micro-batch at a time.

    Attributes:
        bytes_at_once: Largest total size of all running passes, in bytes. A single micro-batch may
            be larger.
        micro_batches: Largest number of micro-batches per pass; a power of two.
        parallel_passes: Largest number of passes that run in parallel.
    """

    bytes_at_once: int
    micro_batches: int
    parallel_passes: int


# Measured gain: compare with `ours, one by one` of benchmarks/step_time.py.
LIMITS: dict[DeviceKind, Limits] = {
    "CPU": Limits(128 * 2**20, micro_batches=4, parallel_passes=2),
    # A GPU runs one kernel after another, so parallel passes gain little.
    "GPU": Limits(256 * 2**20, micro_batches=32, parallel_passes=1),
}


class Passes(NamedTuple):
    """How many micro-batches one pass takes, and how many passes run in parallel.

    The micro-batch size bounds memory. If micro-batches need little memory, processing them one by
    one saves nothing and leaves cores idle.

    Attributes:
        micro_batches: Number of micro-batches that one pass takes; a power of two. The window's
            sums are the same up to rounding.
        parallel_passes: Number of passes that run in parallel; their gradients do not depend on
            each other. The sums are bit-identical, because they are added in the order of the
            passes.
    """

    micro_batches: int
    parallel_passes: int


def plan_passes(
    size: float,
    *,
    kind: DeviceKind = "CPU",
    merge_micro_batches: bool = True,
    has_loops: bool = False,
    concurrent_passes: int = 1,
) -> Passes:
    """Return the passes for micro-batches of a given size.

    Args:
        size: Upper bound of the memory of one micro-batch, in bytes (see `Description`).
        kind: Kind of the replica's device.
        merge_micro_batches: Whether one pass may take several micro-batches.
        has_loops: Whether the model has loops. Iterations of a loop wait for each other, so that
            few rows leave cores idle. One pass then takes up to eight times as many micro-batches,
            within the memory limit.
        concurrent_passes: Of the placement. If above 1, this many passes of one micro-batch each
            run in parallel, regardless of their size.
    """
    if concurrent_passes > 1:
        return Passes(1, concurrent_passes)
    limits = LIMITS[kind]
    if has_loops:
        limits = limits._replace(micro_batches=8 * limits.micro_batches, parallel_passes=1)
    if size <= 0:
        return Passes(1, 1)
    room = max(1, min(limits.bytes_at_once // size, limits.parallel_passes * limits.micro_batches))
    parallel = int(min(room, limits.parallel_passes))
    most = min(room // parallel, limits.micro_batches) if merge_micro_batches else 1
    return Passes(2 ** int(math.log2(most)), parallel)
