"""What all workers of a training do next: each knows only its clock, callbacks and signals."""

from __future__ import annotations

import contextlib
from typing import Generic, NamedTuple, TypeVar

from absl import logging

from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.loop.preemption import Preempted, Preemption

Value = TypeVar("Value")


class Decision(NamedTuple, Generic[Value]):
    """What all workers do next.

    Attributes:
        stop: Whether training stops: a callback of some worker asked for it.
        value: The chief's value.
        preempted: Whether SIGTERM came to some worker.
    """

    stop: bool
    value: Value
    preempted: bool


class WorkerSync:
    """Let the workers of a training agree between two calls of the graph."""

    def __init__(self, workers: WorkerGroup) -> None:
        """Take the workers of the training."""
        self.workers = workers
        self._preemption = Preemption()

    def noting_sigterm(self) -> contextlib.AbstractContextManager[Preemption]:
        """Note SIGTERM for the length of a `with` block, in place of ending the process."""
        return self._preemption

    def decide(self, step: int, *, stop: bool, value: Value) -> Decision[Value]:
        """Return what all workers do next.

        Args:
            step: Of the training, the same on all workers.
            stop: Whether a callback of this worker stops training.
            value: Of this worker; the chief's counts.
        """
        found = self.workers.gather(f"step {step}", [stop, value, self._preemption.asked])
        stops, values, asked = zip(*found, strict=True)
        return Decision(any(stops), values[0], any(asked))

    def exit_preempted(self, step: int, directory: str) -> None:
        """End the process after SIGTERM, once the checkpoint of `step` is whole.

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
