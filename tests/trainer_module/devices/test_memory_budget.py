"""The memory budget's setting, and what is free on a machine and in its control groups."""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap

import numpy as np
import psutil
import pytest

from trainer_module.devices.memory_budget import (
    ResidentPeak,
    free_gpu_memory,
    free_machine_memory,
    parse_memory_budget,
)

GIB = 1 << 30


def test_valid_budgets():
    for value, expected in [
        (4_000_000_000, 4_000_000_000),
        ("4000000000", 4_000_000_000),
        ("4GiB", 4 * GIB),
        (" 1.5 gib ", 3 * GIB // 2),
        ("500MB", 500_000_000),
        ("80%", 8 * GIB),  # of the 10 GiB that are free
        ("12.5%", 10 * GIB // 8),
        ("100%", 10 * GIB),
    ]:
        assert parse_memory_budget(value).of(10 * GIB) == expected


def test_invalid_budgets():
    for value in [0, -1, True, 4e9, None, [], "", "4 apples", "GiB", "-4GiB", "0GiB", "4 GiB 2"]:
        with pytest.raises(ValueError, match=r'use bytes .* a size \("4GiB"'):
            parse_memory_budget(value)
    for value in ["0%", "101%"]:
        with pytest.raises(ValueError, match=r"above 0% and up to 100%"):
            parse_memory_budget(value)


def control_group(folder, limit, used, cached):
    """Files of one control group, as the kernel shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")


@pytest.fixture
def process(tmp_path):
    """Write /proc/self/cgroup of a process in control group `path`; return the root folder."""

    def make(path):
        (tmp_path / "proc" / "self").mkdir(parents=True)
        (tmp_path / "proc" / "self" / "cgroup").write_text(f"3:cpu:/elsewhere\n0::{path}\n")
        return tmp_path

    return make


@pytest.fixture
def groups(tmp_path):
    return tmp_path / "sys" / "fs" / "cgroup"


def test_the_tightest_control_group_counts(process, groups):
    control_group(groups / "pod" / "job", limit=1 << 62, used=0, cached=0)
    # Pages of files that were read lately are given back when memory is short.
    control_group(groups / "pod", limit=50 << 20, used=45 << 20, cached=10 << 20)
    assert free_machine_memory(process("/pod/job")) == 15 << 20


def test_a_container_sees_its_own_group_as_the_root(process, groups):
    control_group(groups, limit=20 << 20, used=5 << 20, cached=0)
    assert free_machine_memory(process("/docker/abc")) == 15 << 20


def test_without_a_limit_the_machine_counts(process, groups, tmp_path):
    """Tolerance: other processes may take or give back 30 % of the machine meanwhile."""
    control_group(groups / "job", limit="max", used=1, cached=0)
    available = psutil.virtual_memory().available
    total = psutil.virtual_memory().total
    assert abs(free_machine_memory(process("/job")) - available) < 0.3 * total
    assert abs(free_machine_memory(tmp_path / "nothing") - available) < 0.3 * total


BYTES = 64 << 20


def test_freed_memory_counts():
    peak = ResidentPeak()
    rows = np.ones(BYTES, "uint8")
    del rows
    for _ in range(3):
        assert 0.9 * BYTES < peak.update() < 1.5 * BYTES


def test_files_do_not_count_even_where_the_kernel_pages_them_out(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(BYTES))
    peak = ResidentPeak()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as pages:
        assert sum(pages[:: mmap.PAGESIZE]) == 0  # reads each page
        peak.update()
        pages.madvise(mmap.MADV_DONTNEED)
        for _ in range(3):
            assert peak.update() < 0.5 * BYTES


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="this machine has CUDA")
def test_a_missing_driver_is_an_error():
    with pytest.raises(RuntimeError, match="cannot ask GPU 0 for its free memory: libcuda"):
        free_gpu_memory(0)
