"""A text file is replaced as a whole; a link stays, and a device is written to."""

from __future__ import annotations

import os
import stat
import subprocess

from shared_core.atomic_files import atomic_write_text


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "new" / "log.csv"
    for text in ("a\n", "größe\n"):
        atomic_write_text(str(path), text)
        assert path.read_text() == text
    assert os.listdir(path.parent) == ["log.csv"]


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    atomic_write_text(str(link), "after")
    assert link.is_symlink()
    assert target.read_text() == "after"


def test_a_fifo_is_written_to(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", str(fifo)], stdout=subprocess.PIPE, text=True)
    atomic_write_text(str(fifo), "rows")
    assert reader.communicate()[0] == "rows"
    assert stat.S_ISFIFO(fifo.stat().st_mode)
