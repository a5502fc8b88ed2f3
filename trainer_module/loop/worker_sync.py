"""Decide what all workers of a training do next.

Each worker knows only its own clock, callbacks and signals.
"""

from __future__ import annotations

import contextlib
from typing import Generic, NamedTuple, TypeVar

from absl import logging

from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.loop.preemption import Preempted, Preemption

Value = TypeVar("Value")


class Decision(NamedTuple, Generic[Value]):
    """The common decision of all workers between two calls of the graph.

    Attributes:
        stop: Whether a callback of any worker asked training to stop.
        value: The chief's value.
        preempted: Whether any worker received SIGTERM.
    """

    stop: bool
    value: Value
    preempted: bool


class WorkerSync:
    """Make the workers of a training agree between two calls of the graph."""

    def __init__(self, workers: WorkerGroup) -> None:
        """Create the sync of a worker group."""
        self.workers = workers
        self._preemption = Preemption()

    def noting_sigterm(self) -> contextlib.AbstractContextManager[Preemption]:
        """Return a context manager that records SIGTERM instead of ending the process."""
        return self._preemption

    def decide(self, step: int, *, stop: bool, value: Value) -> Decision[Value]:
        """Return what all workers do next.

        Args:
            step: Step of the training, the same on all workers.
            stop: Whether a callback of this worker stops training.
            value: This worker's value; all workers use the chief's.
        """
        found = self.workers.gather(f"step {step}", [stop, value, self._preemption.asked])
        stops, values, asked = zip(*found, strict=True)
        return Decision(any(stops), values[0], any(asked))

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
