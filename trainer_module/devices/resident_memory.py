"""Read the resident memory of this process, and reset its peak."""

from __future__ import annotations

import contextlib
from pathlib import Path


def reset_peak() -> None:
    """Make the kernel's peak of resident memory (VmHWM) start from the present value."""
    # proc(5). If that is not permitted, the peak includes earlier work, such as imports.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def memory_status() -> dict[str, int]:
    """Return the sizes in /proc/self/status (VmRSS, VmHWM, RssFile, ...), in bytes."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {line[0][:-1]: int(line[1]) * 1024 for line in lines if line[-1] == "kB"}
