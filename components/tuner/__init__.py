"""TFX's Tuner with trainer_module inside, configured by a typed TunerConfig."""

from __future__ import annotations
