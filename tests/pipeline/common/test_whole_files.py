"""A file is whole or not there, whatever happens while it is written."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.common.whole_files import whole_file

ROOT = Path(__file__).resolve().parents[3]


def test_it_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "new folder" / "rows.csv"
    for text in ("a,b\r\n", "größe\n"):
        with whole_file(path, newline="") as stream:
            stream.write(text)
        assert path.read_bytes().decode() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == ["rows.csv"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_error_leaves_the_one_before_and_nothing_else(tmp_path, error):
    path = tmp_path / "rows.csv"
    path.write_text("before")

    def write() -> None:
        with whole_file(path) as stream:
            stream.write("half of it")
            stream.flush()
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_a_kill_leaves_the_one_before(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("before")
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from pipeline.common.whole_files import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as stream:\n"
        "    stream.write('half of it'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "before"
