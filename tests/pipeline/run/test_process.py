"""Where output goes during a run, and a SIGINT that arrives as another exception."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading

import absl.logging
import pytest

from pipeline.run.process import absl_to_stderr, compiled_kept, interrupts_kept, logs_to


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


_COMPILE = """
import pathlib, sys
import tensorflow as tf
from pipeline.run.process import compiled_kept
with compiled_kept(pathlib.Path(sys.argv[1])):
    print(tf.function(lambda x: 2 * x + 1, jit_compile=True)(tf.constant(3.0)).numpy())
"""


@pytest.mark.slow
def test_the_next_process_loads_what_xla_compiled(tmp_path):
    """A damaged file shows that the second process reads it."""
    folder = tmp_path / "a folder" / "compiled"
    command = (sys.executable, "-c", _COMPILE, folder)
    assert subprocess.check_output(command).split() == [b"7.0"]
    (file,) = folder.glob("*/*.pb")
    file.write_bytes(file.read_bytes()[:100])
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 1
    assert "Read less bytes than requested" in second.stderr


def test_a_folder_that_the_user_named_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_XLA_FLAGS", flags := "--tf_xla_persistent_cache_directory=/mine")
    with compiled_kept(tmp_path):
        assert os.environ["TF_XLA_FLAGS"] == flags


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
