"""Every scaler by its name, `Group.kind`."""

from __future__ import annotations

from typing import get_args

from transform.scale import (
    asinh,
    gaussian,
    log1p,
    min_max,
    none,
    power,
    robust,
    z_score,
    z_score_by_key,
)
from transform.scale.chain import chained
from transform.scale.scaler import Scaler
from transform.spec.scalers import Chainable, Pointwise

SCALERS: dict[str, Scaler] = {
    module.SCALER.name: module.SCALER
    for module in (z_score, min_max, robust, gaussian, power, log1p, asinh, none, z_score_by_key)
}
SCALERS |= {
    scaler.name: scaler
    for first in get_args(Pointwise)
    for scaler in (chained(first, SCALERS[last]) for last in get_args(Chainable))
}
