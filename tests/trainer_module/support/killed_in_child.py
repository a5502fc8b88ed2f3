"""A model whose process is killed, as the kernel does it when memory is short, if it is a probe."""

from __future__ import annotations

import os
import signal
import sys

if "trainer_module.memory.probe" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGKILL)

from probe_models import dense as build

__all__ = ["build"]
