"""Update the masks of pruned layers."""

from __future__ import annotations

import keras
from absl import logging

from trainer_module.common.json_values import Json
from trainer_module.layers.pruned_dense import PrunedDense
from trainer_module.loop.callbacks.callback import Callback, LoopProgress


def pruned_layers(model: keras.Model) -> list[PrunedDense]:
    """Return the `PrunedDense` layers of a model."""
    return [each for each in model._flatten_layers() if isinstance(each, PrunedDense)]


class Prune(Callback):
    """Remove the smallest weights of each `PrunedDense` layer by its schedule.

    The loop ends a call of the graph at each step where a mask is due. The state is in the masks,
    which a checkpoint saves with the model.

    Example:
        TrainingLoop(step, data, epochs=3, callbacks=[Prune(model)]).fit()
    """

    def __init__(self, model: keras.Model) -> None:
        """Find the layers.

        Args:
            model: The model that is trained, built.

        Raises:
            ValueError: The model has no `PrunedDense` layer, or one that is not built.
        """
        self._layers = pruned_layers(model)
        if not self._layers:
            raise ValueError(f"model={model.name!r} has no PrunedDense layer: leave Prune out.")
        for layer in self._layers:
            if not layer.built:
                raise ValueError(f"layer {layer.name!r} is not built: call the model first.")

    def steps_until_due(self, step: int) -> int | None:
        """Return the steps until the next update of a mask; None after the last one."""
        found = (layer.steps_until_due(step) for layer in self._layers)
        return min((steps for steps in found if steps is not None), default=None)

    def on_loop(self, progress: LoopProgress) -> None:
        """Update the masks that are due."""
        for layer in self._layers:
            if layer.prune(progress.step) and progress.step >= layer.end_step:
                logging.info(
                    "Layer %s: %.0f %% of the weights are removed.",
                    *(layer.path, 100 * layer.sparsity),
                )

    @property
    def end_step(self) -> int:
        """Optimizer steps after which no mask changes any more."""
        return max(layer.end_step for layer in self._layers)

    def facts(self) -> dict[str, Json]:
        """Return the schedules, in the order of the layers."""
        return {
            "schedules": [
                [layer.sparsity, layer.begin_step, layer.end_step, layer.every]
                for layer in self._layers
            ]
        }
