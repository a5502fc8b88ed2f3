"""The command line answers at once, and knows what it offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import cli, positionals
from pipeline.common import exit_codes
from pipeline.engines.table import ENGINES

HEAVY = ("pydantic", "yaml", "rich", "numpy", "tensorflow", "apache_beam", "tfx")


def test_help_imports_nothing_that_takes_time():
    script = (
        "import sys; from pipeline.cli import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "usage: python -m pipeline" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_of_beam_options_names_the_engines(capsys):
    with pytest.raises(SystemExit):
        cli.main(["beam-options", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"one of {', '.join(ENGINES)}; default: the YAML's" in shown


def test_help_of_run_and_the_docs_say_what_its_exit_codes_mean(capsys):
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    shown = capsys.readouterr().out
    page = (Path(__file__).parents[3] / "docs" / "own-data.md").read_text(encoding="utf-8")
    assert len(exit_codes.OF_A_RUN) == 6
    for code, meaning in exit_codes.OF_A_RUN.items():
        assert f"{code:>3}  {meaning}\n" in shown
        assert f"| {code} | {meaning} |\n" in page


COMMANDS = {
    "run": ["--config"],
    "compile": ["--config"],
    "replay": ["--spec"],
    "init": ["--data"],
    "features suggest": ["--data"],
    "predict": ["--model", "--data"],
    "check-serving": ["--model", "--data"],
}


def parsed(*argv: str) -> dict[str, Any]:
    """Returns the options of a command line."""
    target = ["--target", "vertex"] * ("compile" in argv)
    found = vars(positionals.parse(cli._parser(), [*argv, *target]))
    return {name: value for name, value in found.items() if name not in ("parser", "positionals")}


def test_a_name_may_begin_with_a_dash_behind_two():
    assert parsed("init", "--label", "y", "--", "-x.csv")["data"] == "-x.csv"
    assert parsed("predict", "model", "--", "-x.csv")["data"] == "-x.csv"
    with pytest.raises(SystemExit):
        parsed("init", "-x.csv")


@pytest.mark.parametrize("command", COMMANDS)
def test_values_are_taken_without_their_options(command):
    options, words = COMMANDS[command], command.split()
    values = ["a file", "-"][: len(options)]
    named = [word for pair in zip(options, values, strict=True) for word in pair]
    expected = parsed(*words, *named)
    assert parsed(*words, *values) == expected
    mixed = [*named[:2], *values[1:]]
    assert parsed(*words, *mixed) == expected
    assert parsed(*words, *values[:-1], *named[-2:]) == expected
    if "--data" in options:
        old = ["--input" if word == "--data" else word for word in named]
        assert parsed(*words, *old) == expected


def test_a_value_may_follow_an_option():
    arguments = parsed("run", "--set", "training.epochs=1", "my.yaml", "--wait")
    assert (arguments["config"], arguments["set"]) == (Path("my.yaml"), ["training.epochs=1"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run"], "pipeline run: error: the following arguments are required: --config"),
        (["predict", "model"], "the following arguments are required: --data"),
        (["run", "a.yaml", "b.yaml"], "unrecognized arguments: b.yaml"),
        (["run", "--config", "a.yaml", "b.yaml"], "unrecognized arguments: b.yaml"),
        (
            ["run", "a.yaml", "--verbos3"],
            "unrecognized arguments: --verbos3; did you mean --verbose?",
        ),
        (["schema", "x"], "unrecognized arguments: x"),
    ],
)
def test_wrong_arguments_are_named(argv, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(*argv)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
