"""scale: none. x itself, clipped and imputed."""

from __future__ import annotations

from transform.scale.scaler import Scaler

SCALER = Scaler(name="none", apply=lambda columns: columns.x)
