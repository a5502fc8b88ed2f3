"""Completion in a shell: commands, options, values and files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from pipeline.cli import cli
from pipeline.cli.cli import _COMPLETION
from pipeline.common.program import CONSOLE_SCRIPT

ROOT = Path(__file__).parents[3]


def completed(*words: str) -> set[tuple[str, str]]:
    """Returns (type, value) of what may stand for the last word."""
    kind = get_completion_class("bash")
    assert kind is not None
    found = kind(cli.cli, {}, CONSOLE_SCRIPT, _COMPLETION).get_completions(
        list(words[:-1]), words[-1]
    )
    return {(item.type, item.value) for item in found}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ru"], {("plain", "run"), ("plain", "runs")}),
        (["features", ""], {("plain", "suggest"), ("plain", "explain")}),
        (["run", "--wa"], {("plain", "--wait")}),
        (["init", "x.csv", "--no"], {("plain", "--no-header")}),
        (["run", "my"], {("file", "my")}),  # the shell lists the files
        (["run", "--config", "my"], {("file", "my")}),
        (["run", "my.yaml", ""], set()),
        (["predict", "model", ""], {("file", "")}),
        (["predict", "model", "rows.csv", ""], set()),
        (["predict", "--data", "rows.csv", ""], {("file", "")}),
        (["image", "build", "--output", "o"], {("dir", "o")}),
        (["compile", "--target", "ku"], {("plain", "kubeflow")}),
        (["init", "--source", "p"], {("plain", "parquet")}),
        (["run", "--nothing", "--wa"], {("plain", "--wait")}),  # an error before it
    ],
)
def test_completions(words, expected):
    assert completed(*words) == expected


def test_every_command_and_option_is_offered():
    assert {value for _, value in completed("")} == set(cli.cli.commands)
    options = {value for _, value in completed("replay", "--")}
    assert {"--spec", "--map", "--parameter", "--help"} < options


PRESS_TAB = """
source <(_TFX_LARGEBATCH_COMPLETE=bash_source tfx-largebatch)
complete -p tfx-largebatch >&2
press() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _tfx_largebatch_completion tfx-largebatch
    echo "${COMPREPLY[*]}"
}
press tfx-largebatch sub
press tfx-largebatch run --w
"""


def test_bash_completes(tmp_path):
    program = tmp_path / CONSOLE_SCRIPT
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m pipeline "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", PRESS_TAB],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["submit", "--wait"]
    assert "-F _tfx_largebatch_completion tfx-largebatch" in done.stderr


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_other_shells_get_a_script(name):
    done = subprocess.run(
        [sys.executable, "-m", "pipeline"],
        env={"PATH": "/usr/bin:/bin", _COMPLETION: f"{name}_source"},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert f"{_COMPLETION}={name}_complete" in done.stdout
    assert "_tfx_largebatch_completion" in done.stdout
    if shutil.which(name):
        subprocess.run([name, "-n"], input=done.stdout, text=True, check=True)
