"""A file is whole or not there, whatever happens while it is written."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shared_core.atomic_files import atomic_write, atomic_write_text, would_replace

ROOT = Path(__file__).resolve().parents[2]


def test_it_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "new folder" / "rows.csv"
    for text in ("a,b\r\n", "größe\n"):
        with atomic_write(path, newline="") as stream:
            stream.write(text)
        assert path.read_bytes().decode() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    atomic_write_text(str(path), "ü\n")
    assert path.read_text() == "ü\n"
    assert os.listdir(path.parent) == ["rows.csv"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_error_leaves_the_one_before_and_nothing_else(tmp_path, error):
    path = tmp_path / "rows.csv"
    path.write_text("before")

    def write() -> None:
        with atomic_write(path) as stream:
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
        "from shared_core.atomic_files import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as stream:\n"
        "    stream.write('half of it'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "before"


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    target = tmp_path / "data" / "rows.csv"
    target.parent.mkdir()
    target.write_text("before")
    target.chmod(0o600)
    for name, place in (("to_file", target), ("to_nothing", tmp_path / "new" / "rows.csv")):
        link = tmp_path / name
        link.symlink_to(place)
        assert would_replace(link) == place.exists()
        with atomic_write(link) as stream:
            stream.write("after")
        assert link.is_symlink()
        assert place.read_text() == "after"
        assert len(list(place.parent.iterdir())) == 1
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_fifo_is_written_to(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", str(fifo)], stdout=subprocess.PIPE, text=True)
    assert not would_replace(fifo)
    with atomic_write(fifo) as stream:
        stream.write("rows")
    assert reader.communicate()[0] == "rows"
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
@pytest.mark.parametrize("into_a_file", [True, False])
def test_standard_output_is_written_to_and_messages_go_elsewhere(tmp_path, name, into_a_file):
    link = os.readlink("/dev/stdout")
    code = (
        "import sys; from pathlib import Path\n"
        "from shared_core.atomic_files import message_stream, atomic_write\n"
        "print('first')\n"
        "with atomic_write(Path(sys.argv[1])) as stream:\n"
        "    stream.write('rows')\n"
        "print('done', file=message_stream(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, name]
    if into_a_file:
        with (tmp_path / "out").open("w") as stream:
            done = subprocess.run(command, cwd=ROOT, stdout=stream, stderr=-1, check=True)
        output = (tmp_path / "out").read_text()
    else:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        output = done.stdout.decode()
    assert output == "first\nrows"
    assert done.stderr == b"done\n"
    assert os.readlink("/dev/stdout") == link
