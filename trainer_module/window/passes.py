"""How a window's micro-batches pass through the model: small ones together, and two at once."""

from __future__ import annotations

import math
from typing import NamedTuple

from trainer_module.devices.strategies import DeviceKind


class Limits(NamedTuple):
    """How far a kind of device goes beyond one micro-batch at a time.

    Attributes:
        bytes_at_once: What all passes under way may hold where they are more than one micro-batch.
        micro_batches: At most so many in a pass; a power of two.
        parallel_passes: At most so many passes.
    """

    bytes_at_once: int
    micro_batches: int
    parallel_passes: int


# What they gain: `ours, one by one` of benchmarks/step_time.py.
LIMITS: dict[DeviceKind, Limits] = {
    "CPU": Limits(128 * 2**20, micro_batches=4, parallel_passes=2),
    # A GPU takes one kernel after another: several passes at once gain little.
    "GPU": Limits(256 * 2**20, micro_batches=32, parallel_passes=1),
}


class Passes(NamedTuple):
    """How the micro-batches of a window pass through the model.

    The size of a micro-batch is there to bound memory. Where several hold next to nothing, one by
    one they bound nothing and leave cores idle.

    Attributes:
        micro_batches: So many are rows of one pass: a power of two. The window's sums are the same
            to rounding.
        parallel_passes: So many passes may be under way, since their gradients do not depend on
            each other. The sums are the same to the bit: they are added in the passes' order.
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
    """Return how micro-batches of a size pass through the model.

    Args:
        size: Bytes that one micro-batch may hold (see `Description`).
        kind: Kind of the replica's device.
        merge_micro_batches: Whether one pass may take several.
        has_loops: Whether the model has loops. Their iterations wait for each other, so that few
            rows leave cores idle: one pass then takes eight times as many micro-batches, if memory
            allows.
        concurrent_passes: The placement's; above 1, so many passes of one micro-batch each are
            under way, whatever they hold.
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
