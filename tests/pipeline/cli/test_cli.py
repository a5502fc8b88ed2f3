"""What the command line accepts, refuses and suggests, and that `--help` is fast and readable."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.common import exit_codes

ROOT = Path(__file__).parents[3]
HEAVY = ("pydantic", "yaml", "numpy", "pandas", "pyarrow", "keras", "tensorflow", "apache_beam")
HEAVY += ("tfx", "tensorflow_transform", "tensorflow_model_analysis", "kfp", "google.auth")


def commands(group: click.Group = cli.cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the words of each command, those of groups included."""
    yield path
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


COMMANDS = sorted(commands())


def shell(text: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash; `tool` in it is this program."""
    tool = f"{shlex.quote(sys.executable)} -m pipeline"
    line = re.sub(r"\btool\b", tool, text)
    return subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)


def command_of(words: tuple[str, ...]) -> Any:
    command: Any = cli.cli
    for word in words:
        command = command.commands[word]
    return command


def parsed(*words: str) -> dict[str, Any]:
    """Returns the options of a command line; nothing runs."""
    command, rest = cli.cli, list(words)
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    return command.make_context(command.name, rest).params


def test_a_new_option_is_seen_in_review():
    """`options.txt` is the list; each line is read in a review before it is added."""
    options = [
        f"{' '.join(words)} {'/'.join((*param.opts, *param.secondary_opts))}"
        for words in COMMANDS
        for param in command_of(words).params
    ]
    assert options == Path(__file__).with_name("options.txt").read_text().splitlines()


def test_help_imports_nothing_that_takes_time():
    script = (
        "import sys; from pipeline.cli import cli\n"
        f"for words in {COMMANDS!r}: assert cli.main([*words, '--help']) == 0, words\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == "[]\n"
    for words in COMMANDS:
        assert f"Usage: {' '.join(['python -m pipeline', *words])} [OPTIONS]" in done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_80_columns_and_is_plain_ascii_in_a_pipe(words):
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli.cli, [*words, "-h"], prog_name="tool")
    assert done.exit_code == 0
    assert not [line for line in done.stdout.splitlines() if len(line.rstrip()) > 80]
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout


def test_each_option_has_help_and_each_example_parses():
    for words in COMMANDS:
        command = command_of(words)
        assert command.help
        for param in command.params:
            assert param.help, (words, param.name)
        for example in re.findall(r"^  python -m pipeline (.*)", command.epilog or "", re.M):
            names = example.partition("#")[0].split()
            assert any(tuple(names[:n]) in COMMANDS for n in (1, 2)), example


def test_help_of_run_and_the_docs_say_what_its_exit_codes_mean():
    shown = " ".join(CliRunner().invoke(cli.cli, ["run", "--help"]).stdout.split())
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")]
    assert len(exit_codes.OF_A_RUN) == 6
    for code, meaning in exit_codes.OF_A_RUN.items():
        assert f" {code} {meaning}" in shown
        assert any(f"| {code} | {meaning} |\n" in page for page in pages)


VALUES = {
    "run": ["--config"],
    "compile": ["--config"],
    "profile": ["--config"],
    "submit": ["--config"],
    "replay": ["--spec"],
    "init": ["--data"],
    "predict": ["--model", "--data"],
}


@pytest.mark.parametrize("command", VALUES)
def test_values_are_taken_without_their_options(command):
    options, words = VALUES[command], [command, *["--target", "vertex"] * (command == "compile")]
    values = ["a file", "-"][: len(options)]
    named = [word for pair in zip(options, values, strict=True) for word in pair]
    expected = parsed(*words, *named)
    assert parsed(*words, *values) == expected
    assert parsed(*words, *named[:2], *values[1:]) == expected
    assert parsed(*words, *values[:-1], *named[-2:]) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "run --set training.epochs=1 my.yaml --json",
            {"config": Path("my.yaml"), "as_json": True},
        ),
        ("run my.yaml --set a.b=-1 --set c.d=x=y", {"overrides": ("a.b=-1", "c.d=x=y")}),
        ("init --label=--force x.csv", {"label": "--force", "force": False}),
        ("init --label y -- --force", {"data": "--force", "force": False}),
        ("init --data -x.csv --no-header", {"data": "-x.csv", "header": False}),
        ("predict model -", {"data": "-"}),
        ("submit --spec x.yaml", {"config": None, "spec": Path("x.yaml"), "timeout": 30}),
        (
            "image build --tag a:1 --tag b --with p",
            {"tags": ("a:1", "b"), "packages": (Path("p"),)},
        ),
        ("image build --no-cuda", {"cuda": False}),
    ],
)
def test_options_and_values_in_any_order(words, expected):
    found = parsed(*words.split())
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("run", ["pipeline run:", "--config"]),
        ("predict model", ["pipeline predict:", "--data"]),
        ("run a.yaml b.yaml", ["(b.yaml)"]),
        ("run a.yaml --quite", ["'--quite'", "Did you mean '--quiet'"]),
        ("rum a.yaml", ["'rum'", "Did you mean 'run'"]),
        ("image bild", ["pipeline image:", "Did you mean 'build'"]),
        ("--json run a.yaml", ["'--json'", "follow its name"]),
        ("init -x.csv", ["'-x'", "./", "--"]),
        ("init x.csv --source cvs", ["--source", "'cvs'", "'csv'"]),
        ("profile my.yaml --steps 0", ["--steps", "0", "1<=x<=1000"]),
        ("submit --timeout=-1", ["--timeout", "-1", "1<=x<=86400"]),
        ("compile my.yaml", ["--target", "kubeflow", "vertex"]),
        ("image build --stack 1.17", ["'1.17'", "'1.16', '1.21'"]),
        ("predict m d --set a=b", ["--set a=b: needs --config"]),
        ("run no-such.yaml", ["no-such.yaml: cannot read"]),
    ],
)
def test_wrong_arguments_are_named(line, facts, capsys):
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    for fact in facts:
        assert fact in err
    if "Usage" in err:
        assert err.splitlines()[-1].endswith("--help`.")


def test_in_a_shell():
    """Processes as a user starts them: exit codes, streams, names that begin with a dash."""
    lines = [
        ("tool run --set a.b=-1 --set c.d=2 -- -x.yaml", 2, "", "-x.yaml: cannot read"),
        ("tool", 2, "", "Usage: python -m pipeline"),
        ("tool image", 2, "", "Usage: python -m pipeline image"),
        ("tool --help >&-", 0, "", ""),
        ("tool --help | true; exit ${PIPESTATUS[0]}", 141, "", ""),
    ]
    for line, code, out, err in lines:
        done = shell(line)
        assert done.returncode == code, (line, done.stderr)
        assert out in done.stdout, line
        assert err in done.stderr if err else done.stderr == "", (line, done.stderr)


def test_interrupted_with_ctrl_c():
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # may be ignored by a shell
        "from pipeline.cli import cli, local\n"
        "def press(): os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "local.schema.callback = press\n"
        "sys.exit(cli.main(['schema']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
