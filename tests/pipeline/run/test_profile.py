"""`profile` needs a run's transformed rows. On a real run: tests/e2e/test_taxi.py."""

from __future__ import annotations

from pipeline.cli.cli import main
from pipeline.common import exit_codes


def test_a_pipeline_that_has_not_run_is_named(write, capsys):
    assert main(["profile", str(write())]) == exit_codes.WRONG_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    for fact in ("small has not run", "metadata.sqlite", "pipeline run"):
        assert fact in err
