"""What every benchmark prints: the machine, the versions, medians, spread and ratios."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence

PACKAGES = ("tfx", "tensorflow", "keras", "tensorflow-transform", "apache-beam")


def machine() -> str:
    """One line: processor, cores, Python and the versions that matter."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            names = [line.partition(":")[2].strip() for line in stream if "model name" in line]
        model = names[0] if names else model
    except OSError:
        pass
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}, {versions}"


def spread(seconds: Sequence[float]) -> str:
    """`12.3 s (11.9 to 12.8, n=5)`: median and range."""
    median = statistics.median(seconds)
    return f"{median:.1f} s ({min(seconds):.1f} to {max(seconds):.1f}, n={len(seconds)})"


def ratio(ours: Sequence[float], baseline: Sequence[float]) -> str:
    """The median of the ratios of runs made one after the other, and their range."""
    ratios = [mine / theirs for mine, theirs in zip(ours, baseline, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
