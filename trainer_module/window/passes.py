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
        at_once: At most so many passes.
    """

    bytes_at_once: int
    micro_batches: int
    at_once: int


# What they gain: `ours, one by one` of benchmarks/step_time.py.
LIMITS: dict[DeviceKind, Limits] = {
    "CPU": Limits(128 * 2**20, micro_batches=4, at_once=2),
    # A GPU takes one kernel after another: several passes at once gain little.
    "GPU": Limits(256 * 2**20, micro_batches=32, at_once=1),
}


class Passes(NamedTuple):
    """How the micro-batches of a window pass through the model.

    The size of a micro-batch is there to bound memory. Where several hold next to nothing, one by
    one they bound nothing and leave cores idle.

    Attributes:
        micro_batches: So many are rows of one pass: a power of two. The window's sums are the same
            to rounding.
        at_once: So many passes may be under way, since their gradients do not depend on each other.
            The sums are the same to the bit: they are added in the passes' order.
    """

    micro_batches: int
    at_once: int


def plan_passes(
    size: float,
    *,
    kind: DeviceKind = "CPU",
    together: bool = True,
    turns: bool = False,
    stages: int = 1,
) -> Passes:
    """Returns how micro-batches of a size pass through the model.

    Args:
        size: Bytes that one micro-batch may hold (see `Description`).
        kind: Of the replica's device.
        together: Whether one pass may take several.
        turns: Whether the model has loops. Their turns wait for each other, so that few rows leave
            cores idle: one pass then takes eight times as many micro-batches, if memory allows.
        stages: Of the model. Each stage has a micro-batch of its own while the others have theirs:
            so many are under way, each a pass, whatever they hold.
    """
    if stages > 1:
        return Passes(1, stages)
    limits = LIMITS[kind]
    if turns:
        limits = limits._replace(micro_batches=8 * limits.micro_batches, at_once=1)
    if size <= 0:
        return Passes(1, 1)
    room = max(1, min(limits.bytes_at_once // size, limits.at_once * limits.micro_batches))
    at_once = int(min(room, limits.at_once))
    most = min(room // at_once, limits.micro_batches) if together else 1
    return Passes(2 ** int(math.log2(most)), at_once)
