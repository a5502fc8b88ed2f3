"""Choose the devices that compute a model's sums and updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import keras

Result = TypeVar("Result")


class Placement:
    """The placement of a model on one device: TensorFlow chooses it.

    A model with variables on several devices has an instance of a subclass as its attribute
    `placement`.

    Attributes:
        concurrent_passes: Number of passes of a window that run in parallel, each with one
            micro-batch; 1: `plan_passes` decides.
    """

    concurrent_passes: int = 1

    def map(self, function: Callable[..., Result], *lists: Sequence[object]) -> list[Result]:
        """Return the function's results, one per trainable variable.

        Args:
            function: Called with one element of each list, on the variable's device.
            *lists: Lists with one element per trainable variable, in the model's order.
        """
        return [function(*parts) for parts in zip(*lists, strict=True)]

    def prepare_optimizer(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Make a built optimizer compute each update on the variable's device."""


def placement_of(model: keras.Model) -> Placement:
    """Return the model's `placement`, or the default placement if it has none."""
    found = getattr(model, "placement", None)
    return found if isinstance(found, Placement) else Placement()
