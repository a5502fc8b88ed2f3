"""The command line answers at once, and knows what it offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli import cli
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
