"""Every scaler by its name, `Group.kind`."""

from __future__ import annotations

from transform.scale import gaussian, log1p, min_max, none, robust, z_score, z_score_by_key
from transform.scale.scaler import Scaler

SCALERS: dict[str, Scaler] = {
    module.SCALER.name: module.SCALER
    for module in (z_score, min_max, robust, gaussian, log1p, none, z_score_by_key)
}
