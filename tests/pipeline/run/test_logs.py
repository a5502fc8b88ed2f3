"""absl's log goes to the run's own stream, and to the earlier one again after the run."""

from __future__ import annotations

import io
import sys

import absl.logging

from pipeline.run.logs import absl_to_stderr


def test_absl_writes_to_the_present_stderr_for_the_run_alone(monkeypatch):
    handler = absl.logging.get_absl_handler().python_handler
    before, present = handler.stream, io.StringIO()
    monkeypatch.setattr(sys, "stderr", present)
    with absl_to_stderr():
        handler.stream.write("within")
    assert "within" in present.getvalue()
    assert handler.stream is before
