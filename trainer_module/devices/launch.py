"""Re-export `trainer_module.launch` under its former module, for existing programs."""

from __future__ import annotations

from trainer_module.devices.local_cluster import WorkersFailed, launch

__all__ = ["WorkersFailed", "launch"]
