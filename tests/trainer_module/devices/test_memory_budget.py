"""The memory budget's setting, and what is free on a machine and in its control groups."""

from __future__ import annotations

import ctypes
import ctypes.util
import subprocess

import psutil
import pytest

from trainer_module.devices.memory_budget import (
    format_bytes,
    free_gpu_memory,
    free_machine_memory,
    parse_memory_budget,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4_000_000_000, 4_000_000_000),
        ("4000000000", 4_000_000_000),
        ("4GiB", 4 * GIB),
        (" 1.5 gib ", 3 * GIB // 2),
        ("500MB", 500_000_000),
        ("80%", 8 * GIB),  # of the 10 GiB that are free
        ("12.5%", 10 * GIB // 8),
        ("100%", 10 * GIB),
    ],
)
def test_valid_budgets(value, expected):
    assert parse_memory_budget(value).of(10 * GIB) == expected


@pytest.mark.parametrize(
    "value", [0, -1, True, 4e9, None, [], "", "4 apples", "GiB", "-4GiB", "0GiB", "4 GiB 2"]
)
def test_invalid_budgets(value):
    with pytest.raises(ValueError, match=r'use bytes .* a size \("4GiB"'):
        parse_memory_budget(value)


@pytest.mark.parametrize("value", ["0%", "101%"])
def test_a_share_lies_above_0_and_up_to_100_percent(value):
    with pytest.raises(ValueError, match=r"above 0% and up to 100%"):
        parse_memory_budget(value)


def test_bytes_as_people_read_them():
    shown = [format_bytes(n) for n in (0, 1023, 1024, 12 << 20, 5 * GIB // 2, 3 << 50)]
    assert shown == ["0 B", "1023 B", "1.0 KiB", "12.0 MiB", "2.5 GiB", "3072.0 TiB"]


def control_group(folder, version, limit, used, cached):
    """Files of one control group, as the kernel shows them."""
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {cached}\n")


@pytest.fixture
def process(tmp_path):
    """Write /proc/self's files for a process in control group `path`, mounted below tmp_path."""

    def make(version, path, mount_root="/"):
        folder = tmp_path / "process"
        folder.mkdir()
        kind, hierarchy = ("cgroup", "7:cpu,memory") if version == 1 else ("cgroup2", "0:")
        options = "rw,memory" if version == 1 else "rw"
        (folder / "cgroup").write_text(f"3:cpu:/elsewhere\n{hierarchy}:{path}\n")
        (folder / "mountinfo").write_text(
            f"30 23 0:28 / /sys rw - sysfs sysfs rw\n"
            f"32 31 0:29 {mount_root} {tmp_path}/groups rw,relatime shared:9 - {kind} x {options}\n"
        )
        return folder

    return make


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_control_group_counts(process, tmp_path, version):
    groups = tmp_path / "groups"
    control_group(groups / "pod" / "job", version, limit=1 << 62, used=0, cached=0)
    # Pages of files that were read lately are given back when memory is short.
    control_group(groups / "pod", version, limit=50 << 20, used=45 << 20, cached=10 << 20)
    assert free_machine_memory(process(version, "/pod/job")) == 15 << 20


def test_a_container_sees_its_own_group_as_the_root(process, tmp_path):
    control_group(tmp_path / "groups", 1, limit=20 << 20, used=5 << 20, cached=0)
    folder = process(1, "/docker/abc", mount_root="/docker/abc")
    assert free_machine_memory(folder) == 15 << 20


def test_a_group_above_its_limit_has_nothing_free(process, tmp_path):
    control_group(tmp_path / "groups" / "job", 2, limit=5 << 20, used=6 << 20, cached=0)
    assert free_machine_memory(process(2, "/job")) == 0


@pytest.mark.parametrize("limit", ["max", 1 << 62])
def test_without_a_limit_the_machine_counts(process, tmp_path, limit):
    """Tolerance: other processes may take or give back 30 % of the machine meanwhile."""
    control_group(tmp_path / "groups" / "job", 2, limit=limit, used=1, cached=0)
    available = psutil.virtual_memory().available
    total = psutil.virtual_memory().total
    assert abs(free_machine_memory(process(2, "/job")) - available) < 0.3 * total
    assert abs(free_machine_memory(tmp_path / "no_such_process") - available) < 0.3 * total


# The calls of cuda.h that `free_gpu_memory` makes, by their rules: a device before its context, and
# memory asked for only while a context is current.
DRIVER = r"""
#include <stddef.h>
typedef int CUresult; typedef int CUdevice; typedef struct CUctx_st *CUcontext;
enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3 };
enum { INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
static char contexts[2]; static int started, retained; static CUcontext current;
static CUcontext context_of(CUdevice d) { return (CUcontext)&contexts[d]; }
CUresult cuInit(unsigned flags) { started = 1; return flags ? INVALID_VALUE : OK; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (!started) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal > 1) return INVALID_DEVICE;
  *device = ordinal;
  return OK;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  retained++;
  *context = context_of(device);
  return OK;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return retained-- > 0 ? OK : INVALID_CONTEXT;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (!retained || current) return INVALID_CONTEXT;
  current = context;
  return OK;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (!current) return INVALID_CONTEXT;
  *context = current;
  current = NULL;
  return OK;
}
CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  if (!current) return INVALID_CONTEXT;
  *free = current == context_of(1) ? 70000000000 : 60000000000;
  *total = 80000000000;
  return OK;
}
int left_behind(void) { return retained + (current != NULL); }
"""


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Two GPUs with 60 and 70 GB free, behind the functions of NVIDIA's driver."""
    source, library = tmp_path / "cuda.c", tmp_path / "libcuda.so.1"
    source.write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": loaded}.__getitem__)
    return loaded


def test_a_gpu_is_asked_by_the_rules_of_its_driver(driver):
    assert [free_gpu_memory(1), free_gpu_memory(0)] == [70_000_000_000, 60_000_000_000]
    assert driver.left_behind() == 0


def test_an_unknown_gpu_is_named_with_the_drivers_answer(driver):
    with pytest.raises(RuntimeError, match=r"GPU 2 for its .*: cuDeviceGet gave .* 101"):
        free_gpu_memory(2)
    assert driver.left_behind() == 0


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="this machine has CUDA")
def test_a_missing_driver_is_an_error():
    with pytest.raises(RuntimeError, match="cannot ask GPU 0 for its free memory: libcuda"):
        free_gpu_memory(0)
