"""The commands that a run ends with, and the document of `run --json`; tests/e2e has runs."""

from __future__ import annotations

import glob
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_inputs import result_of

from pipeline.cli.cli import main
from pipeline.cli.local import predict
from pipeline.common.program import program, shell_argument
from pipeline.config.config_file import load_config
from pipeline.run.folder_lock import exclusive_run
from pipeline.run.run_end import _predict_command, show_next_steps

NAMES = ("rows.csv", "it's $HOME `ls`.csv", ":cat:;&.csv", "a\tb*[1].csv")


def arguments_of(command: str) -> dict[str, Any]:
    """What `predict` gets, as a shell splits it."""
    shell = f'set -- {command.removeprefix("python -m pipeline predict")}; printf "%s\\0" "$@"'
    words = subprocess.run(["sh", "-c", shell], capture_output=True, check=True).stdout
    parts = words.decode().split("\0")[:-1]
    return predict.make_context("predict", parts).params


@pytest.mark.parametrize("name", NAMES)
def test_names_survive_the_shell(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tmp_path / f"out {name}" / "1"
    model.mkdir(parents=True)
    write()
    (tmp_path / name).write_bytes((tmp_path / "rows.csv").read_bytes())
    config = load_config(write())
    data = config.data.model_copy(update={"path": str(tmp_path / glob.escape(name))})
    pushed = {"pushed": 1, "pushed_destination": str(model)}
    run = result_of(config.model_copy(update={"data": data}), {("Pusher", "pushed_model"): pushed})
    out = io.StringIO()
    show_next_steps(run, Console(file=out, width=40))
    kind, _, command = out.getvalue().removesuffix("\n").partition("   ")
    assert kind == "predict"
    found = arguments_of(command.strip())
    assert [os.path.abspath(path) for path in glob.glob(found["data"])] == [str(tmp_path / name)]
    assert os.path.abspath(found["model"]) == str(model)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, {"source": "csv"}),
        ({"path": "rows.dat"}, {"source": "csv"}),
        ({"path": "part-*.csv"}, {"data": "part-2.csv"}),
        ({"path": "part-{SPAN}.csv"}, {"data": "part-2.csv"}),
    ],
)
def test_the_data_are_read_as_by_the_run(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, wanted: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(lambda config: config["data"].update(change))
    for name in ("rows.dat", "part-1.csv", "part-2.csv"):
        (tmp_path / name).write_bytes((tmp_path / "rows.csv").read_bytes())
    found = arguments_of(_predict_command(load_config(file), tmp_path / "model"))
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("started", "called"),
    [
        ("/usr/bin/tfx-largebatch", "tfx-largebatch"),
        ("/src/pipeline/__main__.py", "python -m pipeline"),
    ],
)
def test_commands_are_called_as_the_program_was(
    monkeypatch: pytest.MonkeyPatch, started: str, called: str
) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert program() == called


def test_a_name_is_no_option() -> None:
    assert shlex.split(shell_argument("--output")) == ["./--output"]
    assert shell_argument("rows.csv") == "rows.csv"


def error_of(printed: str) -> dict[str, Any]:
    document = json.loads(printed)
    assert list(document) == ["error"]
    return document["error"]


def test_a_wrong_configuration(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(write()), "--set", "training.epoch=1", "--json"]) == 2
    out, err = capfd.readouterr()
    error = error_of(out)
    assert (error["exit_code"], error["node"], error["log"]) == (2, None, None)
    assert "training.epoch" in error["message"]
    assert err.strip() == error["message"].strip()


def test_a_folder_in_use(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    file = write()
    folder = Path(load_config(file).output.folder)
    folder.mkdir()
    with exclusive_run("another run", {"output.folder": folder}):
        assert main(["run", str(file), "--json", "--quiet"]) == 4
    out, err = capfd.readouterr()
    assert error_of(out)["exit_code"] == 4
    assert "another run" in error_of(out)["message"]
    assert err.strip() == error_of(out)["message"]
