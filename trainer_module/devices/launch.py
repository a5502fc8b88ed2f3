"""The former place of `trainer_module.launch`, for programs that import it from here."""

from __future__ import annotations

from trainer_module.devices.local_cluster import WorkersFailed, launch

__all__ = ["WorkersFailed", "launch"]
