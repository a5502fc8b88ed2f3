"""Decide what all workers of a training do next, also after SIGTERM.

Each worker knows only its own clock, callbacks and signals. Platforms send SIGTERM before they
reclaim a machine.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Generic, NamedTuple, TypeVar

from absl import logging

from trainer_module.devices.worker_group import WorkerGroup

_Value = TypeVar("_Value")


_EXIT_PREEMPTED = 143  # 128 + SIGTERM, as after a kill by SIGTERM; but a checkpoint was saved


class Preempted(SystemExit):
    """Training stopped at a step boundary after SIGTERM and saved a checkpoint of that step.

    As a SystemExit it ends the process with exit code 143 and no traceback.
    """

    def __init__(self, message: str) -> None:
        """Create the exception with a message that says what was saved."""
        super().__init__(_EXIT_PREEMPTED)
        self.message = message

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class _Decision(NamedTuple, Generic[_Value]):
    """The common decision of all workers between two calls of the graph.

    Attributes:
        stop: Whether a callback of any worker asked training to stop.
        value: The chief's value.
        preempted: Whether any worker received SIGTERM.
    """

    stop: bool
    value: _Value
    preempted: bool


class WorkerSync:
    """Make the workers of a training agree between two calls of the graph."""

    def __init__(self, workers: WorkerGroup) -> None:
        """Create the sync of a worker group."""
        self.workers = workers
        self.was_asked_to_end = False

    @contextlib.contextmanager
    def noting_sigterm(self) -> Iterator[None]:
        """Record SIGTERM in the block, in the main thread and without a handler of the program."""
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return

        def record(number: int, frame: FrameType | None) -> None:
            self.was_asked_to_end = True

        signal.signal(signal.SIGTERM, record)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self.was_asked_to_end:  # after the last step boundary
            signal.raise_signal(signal.SIGTERM)

    def decide(self, step: int, *, stop: bool, value: _Value) -> _Decision[_Value]:
        """Return what all workers do next."""
        found = self.workers.gather(f"step {step}", [stop, value, self.was_asked_to_end])
        stops, values, asked = zip(*found, strict=True)
        return _Decision(any(stops), values[0], any(asked))

    def exit_preempted(self, step: int, directory: str) -> None:
        """End the process after SIGTERM, once the checkpoint of `step` is complete.

        Raises:
            Preempted: Always.
        """
        self.workers.barrier("the checkpoint after SIGTERM")
        message = (
            f"SIGTERM: step {step} is saved in {directory}. Start the program again to continue "
            "from it."
        )
        logging.warning("%s", message)
        raise Preempted(message)
