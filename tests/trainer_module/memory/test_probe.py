"""What a child process counts as the memory of a step."""

from __future__ import annotations

import mmap

import numpy as np

from trainer_module.memory.probe import _Peak

MEGABYTES = 64
BYTES = MEGABYTES << 20


def test_freed_memory_counts():
    peak = _Peak()
    rows = np.ones(BYTES, "uint8")
    del rows
    for _ in range(3):
        assert 0.9 * BYTES < peak.update() < 1.5 * BYTES


def test_files_do_not_count_even_where_the_kernel_pages_them_out(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(BYTES))
    peak = _Peak()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as pages:
        assert sum(pages[:: mmap.PAGESIZE]) == 0  # reads each page
        peak.update()
        pages.madvise(mmap.MADV_DONTNEED)
        for _ in range(3):
            assert peak.update() < 0.5 * BYTES
