"""A SIGINT whose KeyboardInterrupt arrives as another exception."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from pipeline.run.interrupts import interrupts_kept


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


def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_kept():
        os.kill(os.getpid(), signal.SIGINT)


def test_another_thread_has_no_signals_to_keep():
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with interrupts_kept():
                raise RuntimeError("disk")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [str(error) for error in errors] == ["disk"]
