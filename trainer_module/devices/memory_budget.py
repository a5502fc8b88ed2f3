"""The memory budget of a training step: parse the setting, measure free and used memory."""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading
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


class _MemoryBudget(NamedTuple):
    """A number of bytes, or a share of the free memory."""

    value: float
    is_share: bool

    def of(self, free: int) -> int:
        """Return the budget in bytes, given the free bytes."""
        return int(self.value * free if self.is_share else self.value)


def parse_memory_budget(value: object) -> _MemoryBudget:
    """Return the budget for 4000000000, "4GiB", "500MB" or "80%"."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return _MemoryBudget(value, is_share=False)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|[a-z]*)", str(value).strip().lower())
    if not isinstance(value, str) or found is None:
        raise ValueError(_ACCEPTED)
    number, unit = float(found[1]), found[2]
    if unit == "%":
        if not 0 < number <= 100:
            raise ValueError(f"a share lies above 0% and up to 100%; {_ACCEPTED}")
        return _MemoryBudget(number / 100, is_share=True)
    if unit not in _UNITS or number * _UNITS[unit] < 1:
        raise ValueError(_ACCEPTED)
    return _MemoryBudget(number * _UNITS[unit], is_share=False)


def format_bytes(count: float) -> str:
    """Return a size as text: `913 B`, `12.0 MiB`, `3.4 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def free_machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process may still use: the machine's and its control groups'."""
    import psutil

    return min(psutil.virtual_memory().available, *_free_in_control_groups(root), 1 << 62)


def _free_in_control_groups(root: Path) -> Iterator[int]:
    """Yield the free bytes below the limit of each control group (version 2) around this process.

    Inside a container the container's own group is the root, and the other folders are missing.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    top = root / "sys/fs/cgroup"
    path = next((group.removeprefix("0::/") for group in groups if group.startswith("0::")), "")
    for place in (top / path, *(top / path).parents[: len(Path(path).parts)]):
        try:
            allowed = (place / "memory.max").read_text().strip()
            used = int((place / "memory.current").read_text())
            stat = (place / "memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            continue
        if allowed != "max":  # pages of files are taken back when memory is short
            cached = int(dict(line.split() for line in stat).get("inactive_file", 0))
            yield max(0, int(allowed) - used + cached)


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


def reset_peak() -> None:
    """Make the kernel's peak of resident memory (VmHWM) start from the present value."""
    # proc(5). If that is not permitted, the peak includes earlier work, such as imports.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def memory_status() -> dict[str, int]:
    """Return the sizes in /proc/self/status (VmRSS, VmHWM, RssFile, ...), in bytes."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {line[0][:-1]: int(line[1]) * 1024 for line in lines if line[-1] == "kB"}


class ResidentPeak:
    """Peak of resident memory above that at creation, without mapped files (TensorFlow's code).

    The kernel's peak includes mapped files, which it may page out meanwhile, so their size at the
    end does not give their part of the peak. `update` therefore reads and resets the peak often.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files = self._before = self._bytes = 0
        reset_peak()
        self._before = self.update()
        self._bytes = 0

    def update(self) -> int:
        """Return the peak in bytes."""
        with self._lock:
            status = memory_status()
            reset_peak()
            files = status.get("RssFile", 0)
            held = status["VmHWM"] - max(files, self._files)
            self._files = files
            self._bytes = max(self._bytes, held - self._before)
            return self._bytes
