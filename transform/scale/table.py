"""Every scaler by its name, `Group.kind`. A new one is its file and its name here."""

from __future__ import annotations

from transform.scale import (
    asinh,
    gaussian,
    log1p,
    max_abs,
    min_max,
    none,
    power,
    robust,
    z_score,
    z_score_by_key,
)
from transform.scale.chain import chained
from transform.scale.pointwise import FUNCTIONS
from transform.scale.scaler import Scaler

_MODULES = (
    *(z_score, min_max, max_abs, robust, gaussian, power),
    *(log1p, asinh, none, z_score_by_key),
)
SCALERS: dict[str, Scaler] = {module.SCALER.name: module.SCALER for module in _MODULES}
NAMES = tuple(name for name, scaler in SCALERS.items() if not scaler.has_options)
CHAINABLE = tuple(name for name in NAMES if SCALERS[name].chainable)
SCALERS |= {
    scaler.name: scaler
    for first in FUNCTIONS
    for scaler in (chained(first, SCALERS[last]) for last in CHAINABLE)
}
