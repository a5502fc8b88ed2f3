"""The memory budget of a training step: parse the setting, measure free memory."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}
_ACCEPTED = 'use bytes (4000000000), a size ("4GiB", "500MB"), or a share of what is free ("80%")'


class MemoryBudget(NamedTuple):
    """A number of bytes, or a share of the free memory."""

    value: float
    is_share: bool

    def of(self, free: int) -> int:
        """Return the budget in bytes, given the free bytes."""
        return int(self.value * free if self.is_share else self.value)


def parse_memory_budget(value: object) -> MemoryBudget:
    """Return the budget for 4000000000, "4GiB", "500MB" or "80%".

    Raises:
        ValueError: The value has another format.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return MemoryBudget(value, is_share=False)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|[a-z]*)", str(value).strip().lower())
    if not isinstance(value, str) or found is None:
        raise ValueError(_ACCEPTED)
    number, unit = float(found[1]), found[2]
    if unit == "%":
        if not 0 < number <= 100:
            raise ValueError(f"a share lies above 0% and up to 100%; {_ACCEPTED}")
        return MemoryBudget(number / 100, is_share=True)
    if unit not in _UNITS or number * _UNITS[unit] < 1:
        raise ValueError(_ACCEPTED)
    return MemoryBudget(number * _UNITS[unit], is_share=False)


def format_bytes(count: float) -> str:
    """Return a size as text: `913 B`, `12.0 MiB`, `3.4 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def free_machine_memory(process: Path = Path("/proc/self")) -> int:
    """Return the bytes that a process may still use: the machine's and its control groups'."""
    import psutil

    return min(psutil.virtual_memory().available, *_free_in_control_groups(process), 1 << 62)


def _free_in_control_groups(process: Path) -> Iterator[int]:
    """Yield the free bytes below the limit of each control group around a process, v1 and v2."""
    try:
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
        groups = (process / "cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            if kind == ("cgroup" if controllers else "cgroup2") and (
                not controllers or "memory" in options
            ):
                # Inside a container the mount shows the container's own group as the root.
                root, top = mount[3].rstrip("/"), Path(mount[4])
                inner = path.removeprefix(root) if path.startswith(f"{root}/") else path
                folder = top / inner.strip("/")
                yield from _free_below(folder if folder.is_dir() else top, top, v2=not controllers)


def _free_below(folder: Path, top: Path, *, v2: bool) -> Iterator[int]:
    limit, usage, cached = (
        ("memory.max", "memory.current", "inactive_file")
        if v2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    for group in (folder, *folder.parents):
        try:
            allowed = (group / limit).read_text().strip()
            used = int((group / usage).read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            allowed, used, stat = "max", 0, {}  # the root group of v2 lacks these files
        if allowed != "max":
            yield max(0, int(allowed) - used + int(stat.get(cached, 0)))
        if group == top:
            return


def free_gpu_memory(index: int) -> int:
    """Return the free bytes of a GPU, by its index among those that CUDA shows this process.

    Raises:
        RuntimeError: The CUDA driver does not respond.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError(f"cannot ask GPU {index} for its free memory: {error}") from error
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def call(function: str, *arguments: object) -> None:
        status = getattr(cuda, function)(*arguments)
        if status != 0:
            raise RuntimeError(
                f"cannot ask GPU {index} for its free memory: {function} gave CUDA error {status}"
            )

    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), index)
    # TensorFlow uses the primary context, so this creates no additional one.
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxPushCurrent_v2", context)
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        call("cuCtxPopCurrent_v2", ctypes.byref(context))
    finally:
        call("cuDevicePrimaryCtxRelease_v2", device)
    return free.value
