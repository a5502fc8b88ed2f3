"""TFX's Trainer with trainer_module inside, configured by a typed TrainerConfig."""

from __future__ import annotations
