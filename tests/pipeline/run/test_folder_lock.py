"""One run at a time in an output folder: real processes that hold, die, fork and wait."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import cli
from pipeline.common import exit_codes
from pipeline.run import folder_lock
from pipeline.run.folder_lock import Holder, InUse, lock_file, only_run

# Holds what it is told to until a line comes in; with "fork", a child outlives it by a minute.
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from pipeline.run.folder_lock import Holder, only_run
field, path, how = sys.argv[1:]
with only_run(Holder.this("the other run", Path("other.yaml")), {field: Path(path)}):
    child = os.fork() if how == "fork" else None
    if child == 0:
        os.closerange(0, 3)
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
"""
ME = Holder.this("this run")


class Other:
    """Another run's process, which has its lock."""

    def __init__(self, field: str, path: Path, how: str = "hold"):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, field, str(path), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.child = self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate("\n", timeout=20)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)


@pytest.fixture
def other() -> Iterator[Callable[..., Other]]:
    started: list[Other] = []

    def start(*arguments: Any) -> Other:
        started.append(Other(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        if one.child.isdigit():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(one.child), signal.SIGKILL)


def holds(folder: Path, **options: Any) -> list[str]:
    """Takes the lock of a folder and gives it back; what was said meanwhile."""
    said: list[str] = []
    with only_run(ME, {"output.folder": folder}, say=said.append, **options):
        assert json.loads(lock_file(folder).read_text())["pid"] == os.getpid()
    assert lock_file(folder).read_text() == ""
    return said


def test_a_run_in_a_folder_in_use_is_refused_by_the_name_of_its_holder(
    write: Any, other: Any, capsys: Any, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    first = other("output.folder", tmp_path / "out")
    config = str(write())
    assert cli.main(["run", "--config", config]) == exit_codes.IN_USE == 4
    told = capsys.readouterr().err
    assert re.fullmatch(
        rf"output\.folder={tmp_path}/out: process {first.process.pid} \(started "
        rf"\d{{4}}-\d\d-\d\d [\d:]{{8}} [+-]\d{{4}}, of {os.getcwd()}/other\.yaml: "
        r"`the other run`\) is at work there\. Two runs would take each other's models: wait for "
        rf"it \(--wait\), stop it \(kill -INT {first.process.pid}\), or give this run a place of "
        r"its own \(--set output\.folder=\.\.\.\)\.\n",
        told,
    ), told
    # A folder of its own does not help where the store is the other's.
    first.end()
    first = other("metadata.path", tmp_path / "out" / "metadata.sqlite")
    changes = ["output.folder=elsewhere", "metadata.path=out/metadata.sqlite"]
    overrides = [f"--set={change}" for change in changes]
    assert cli.main(["run", "--config", config, *overrides]) == exit_codes.IN_USE
    told = capsys.readouterr().err
    assert told.startswith(
        f"metadata.path={tmp_path}/out/metadata.sqlite: process {first.process}".partition("<")[0]
    )
    assert "(--set metadata.path=...)" in told
    assert not list(tmp_path.glob("*/logs"))


def test_a_lock_that_was_given_back_says_nothing(other: Any, tmp_path: Path) -> None:
    other("output.folder", tmp_path).end()
    assert holds(tmp_path) == []
    assert holds(tmp_path) == []


def test_the_lock_of_a_killed_run_is_taken_with_a_word_on_it(other: Any, tmp_path: Path) -> None:
    killed = other("output.folder", tmp_path)
    killed.kill()
    (said,) = holds(tmp_path)
    assert said.startswith(
        f"Note: output.folder={tmp_path} was in use by process {killed.process.pid}"
    )
    assert "was killed; its finished nodes are cached" in said
    assert holds(tmp_path) == []


def test_forked_children_do_not_keep_the_lock_of_a_killed_run(other: Any, tmp_path: Path) -> None:
    killed = other("output.folder", tmp_path, "fork")
    killed.kill()
    os.kill(int(killed.child), 0)  # still there
    assert len(holds(tmp_path)) == 1


def test_the_next_run_waits(other: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "_POLL_SECONDS", 0.05)
    first = other("output.folder", tmp_path)
    assert first.process.stdin is not None
    waiting = f"Waiting: process {first.process.pid} "
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        first.end()

    with only_run(ME, {"output.folder": tmp_path}, wait=True, say=say):
        assert first.process.returncode == 0
    (line,) = said
    assert line.startswith(waiting)
    assert line.endswith("is at work there.")


def test_another_machines_lock_is_told_as_such(tmp_path: Path) -> None:
    """Its words lie there, and a file system that shares no locks shows none."""
    there = Holder(77, "node-b", "another-boot", "2026-01-02 03:04:05 +0000", "its run")
    file = lock_file(tmp_path)
    file.write_text(json.dumps(there.__dict__))
    with pytest.raises(InUse) as refusal:
        holds(tmp_path)
    assert "process 77 on host node-b (started 2026-01-02 03:04:05 +0000: `its run`)" in str(
        refusal.value
    )
    assert f"remove {file} if it has ended, which cannot be seen from here" in str(refusal.value)
    file.unlink()
    assert holds(tmp_path) == []


def test_after_a_new_start_of_this_machine_nothing_is_held(tmp_path: Path) -> None:
    before = Holder(1, ME.host, "the boot before", "2026-01-02 03:04:05 +0000", "its run")
    lock_file(tmp_path).write_text(json.dumps(before.__dict__))
    (said,) = holds(tmp_path)
    assert "was in use by process 1 (started" in said


@pytest.mark.parametrize("words", ["", "{", "[]", '{"pid": 3}'])
def test_words_that_say_nothing_hinder_nobody(tmp_path: Path, words: str) -> None:
    lock_file(tmp_path).write_text(words)
    assert holds(tmp_path) == []


def test_where_there_are_no_locks_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(descriptor: int, operation: int) -> None:
        raise OSError(folder_lock.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(folder_lock.fcntl, "flock", without_locks)
    said: list[str] = []
    with only_run(ME, {"output.folder": tmp_path}, say=said.append):
        pass
    (line,) = said
    assert "its file system has no locks (No locks available): see to it that no other run" in line


def test_of_many_that_ask_at_once_one_holds(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from pipeline.run.folder_lock import Holder, InUse, only_run\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "try:\n"
        "    with only_run(Holder.this('x'), {'output.folder': Path(sys.argv[1])}):\n"
        "        time.sleep(2)\n"
        "        print('held')\n"
        "except InUse as error:\n"
        "    print(error)\n"
    )
    at = str(time.time() + 1.5)
    command = [sys.executable, "-c", script, str(tmp_path), at]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    printed = [process.communicate(timeout=30)[0] for process in processes]
    (winner,) = (p.pid for p, text in zip(processes, printed, strict=True) if text == "held\n")
    assert sum(f": process {winner} (started " in text for text in printed) == 4
