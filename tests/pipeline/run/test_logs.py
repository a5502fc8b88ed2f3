"""Where output goes during a run: everything to its log, except what the run prints itself."""

from __future__ import annotations

import io
import os
import sys

import absl.logging

from pipeline.run.logs import absl_to_stderr, logs_to


def test_absl_writes_to_the_present_stderr_for_the_run_alone(monkeypatch):
    handler = absl.logging.get_absl_handler().python_handler
    before, present = handler.stream, io.StringIO()
    monkeypatch.setattr(sys, "stderr", present)
    with absl_to_stderr():
        handler.stream.write("within")
    assert "within" in present.getvalue()
    assert handler.stream is before


def test_the_streams_of_the_terminal_stay_apart_and_all_else_is_in_the_log(capfd, tmp_path):
    log = tmp_path / "logs" / "run.log"
    with logs_to(log) as terminal:
        os.write(1, b"from C++\n")
        os.write(2, b"a warning of C++\n")
        terminal.out.write("blessed\n")
        terminal.err.write("failed\n")
    os.write(1, b"after\n")
    assert capfd.readouterr() == ("blessed\nafter\n", "failed\n")
    assert log.read_text() == "from C++\na warning of C++\n"
