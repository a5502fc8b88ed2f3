"""Where output goes during a run, and a SIGINT that arrives as another exception."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading

import absl.logging
import pytest

from pipeline.run.process import absl_to_stderr, interrupts_kept, logs_to


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


@pytest.fixture(autouse=True)
def _python_s_own_handler():
    """As in a terminal: whoever runs the tests in the background has them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _as_pybind11_carries_it_on() -> None:
    try:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(10)
    except KeyboardInterrupt as error:
        raise RuntimeError("KeyboardInterrupt") from error
    pytest.fail("no SIGINT came")


def test_an_interrupt_that_became_a_runtime_error_is_an_interrupt_again():
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        _as_pybind11_carries_it_on()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_errors_pass_as_they_are_also_after_an_interrupt_elsewhere():
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        _as_pybind11_carries_it_on()
    with pytest.raises(RuntimeError, match="disk"), interrupts_kept():
        raise RuntimeError("disk")
