"""TFX's Transform, which writes the transformed examples as Parquet."""

from __future__ import annotations
