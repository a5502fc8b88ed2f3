"""One run at a time in an output folder: real processes that hold a lock and die."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import portalocker
import pytest

from pipeline.cli import cli
from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.run.folder_lock import exclusive_run

# Holds a lock until it reads a line.
SCRIPT = """
import sys
from pathlib import Path
from pipeline.run.folder_lock import exclusive_run
field, path = sys.argv[1:]
with exclusive_run("the other run", {field: Path(path)}):
    print("locked", flush=True)
    sys.stdin.readline()
"""
ME = "this run"


class Other:
    """The process of another run, which holds its lock."""

    def __init__(self, field: str, path: Path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, field, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "locked\n"

    def end(self) -> None:
        self.process.communicate("\n", timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def other() -> Iterator[Callable[..., Other]]:
    started: list[Other] = []

    def start(*arguments: Any) -> Other:
        started.append(Other(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def holds(folder: Path, **options: Any) -> list[str]:
    """Acquire and release the lock of a folder; return the lines that were printed meanwhile."""
    said: list[str] = []
    with exclusive_run(ME, {"output.folder": folder}, say=said.append, **options):
        assert f"process {os.getpid()} " in (folder / ".run.lock").read_text()
    assert (folder / ".run.lock").read_text() == ""
    return said


def test_a_second_run_exits_with_code_4_and_names_the_owner(
    write: Any, other: Any, capsys: Any, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    first = other("output.folder", tmp_path / "out")
    config = str(write())
    assert cli.main(["run", "--config", config]) == exit_codes.IN_USE == 4
    error = capsys.readouterr().err
    pid = first.process.pid
    assert error.startswith(f"output.folder={tmp_path}/out: process {pid} on ")
    assert re.search(r"started \d{4}-\d\d-\d\d [\d:]{8} [+-]\d{4}", error)
    for fact in ("`the other run`", "kill -INT", "(--set output.folder=...)"):
        assert fact in error
    # Another folder does not help if the metadata store is in use.
    first.end()
    first = other("metadata.path", tmp_path / "out" / "metadata.sqlite")
    changes = ["output.folder=elsewhere", "metadata.path=out/metadata.sqlite"]
    overrides = [f"--set={change}" for change in changes]
    assert cli.main(["run", "--config", config, *overrides]) == exit_codes.IN_USE
    error = capsys.readouterr().err
    pid = first.process.pid
    assert error.startswith(f"metadata.path={tmp_path}/out/metadata.sqlite: process {pid} ")
    assert "(--set metadata.path=...)" in error
    assert not list(tmp_path.glob("*/logs"))


def test_a_released_lock_leaves_no_note(other: Any, tmp_path: Path) -> None:
    other("output.folder", tmp_path).end()
    assert holds(tmp_path) == []
    assert holds(tmp_path) == []


def test_the_lock_of_a_killed_run_is_taken_with_a_note(other: Any, tmp_path: Path) -> None:
    killed = other("output.folder", tmp_path)
    killed.kill()
    (said,) = holds(tmp_path)
    assert said.startswith(
        f"Note: output.folder={tmp_path} was used by process {killed.process.pid}"
    )
    assert "was killed; its nodes are cached" in said
    assert holds(tmp_path) == []


def test_a_file_system_without_locks_gives_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(stream: object, flags: object) -> None:
        raise portalocker.LockException("No locks available")

    monkeypatch.setattr(portalocker, "lock", without_locks)
    (line,) = holds(tmp_path)
    assert "no locks (No locks available)" in line


def test_a_folder_without_write_permission_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".run.lock").mkdir()
    with (
        pytest.raises(ConfigError, match=r"output\.folder=.*\.run\.lock"),
        exclusive_run(ME, {"output.folder": tmp_path}),
    ):
        pass
