"""Where the sums and the update of a model are computed: anywhere, unless the model says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras


class Placement:
    """The placement of a model on one device: TensorFlow decides.

    A model whose variables are on several devices has a subclass as its attribute `placement`.

    Attributes:
        concurrent_passes: How many passes of a window are under way at once, each of one
            micro-batch; 1: as `plan_passes` decides.
    """

    concurrent_passes: int = 1

    def map(self, function: Callable[..., Any], *lists: Sequence[Any]) -> list[Any]:
        """Return the function of each trainable variable's part of the lists.

        Args:
            function: Called with one element of each list, on the variable's device.
            *lists: One element per trainable variable each, in the model's order.
        """
        return [function(*parts) for parts in zip(*lists, strict=True)]

    def prepare_optimizer(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Let a built optimizer compute each update on the variable's device."""


def placement_of(model: keras.Model) -> Placement:
    """Return the model's own placement, or that of a model on one device."""
    found = getattr(model, "placement", None)
    return found if isinstance(found, Placement) else Placement()
