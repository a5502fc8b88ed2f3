"""Every scaler by its name, `Group.kind`. A new one is a record in one of these files."""

from __future__ import annotations

from transform.scale import moments, pointwise, ranks
from transform.scale.pointwise import FUNCTIONS, chained
from transform.scale.scaler import Scaler

SCALERS: dict[str, Scaler] = {
    scaler.name: scaler for room in (moments, ranks, pointwise) for scaler in room.SCALERS
}
NAMES = tuple(name for name, scaler in SCALERS.items() if not scaler.has_options)
CHAINABLE = tuple(name for name in NAMES if SCALERS[name].chainable)
SCALERS |= {
    scaler.name: scaler
    for first in FUNCTIONS
    for scaler in (chained(first, SCALERS[last]) for last in CHAINABLE)
}
