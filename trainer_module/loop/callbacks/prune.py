"""Update the masks of pruned layers."""

from __future__ import annotations

import keras

from trainer_module.common.json_values import Json
from trainer_module.loop.callbacks.callback import Callback, LoopProgress
from trainer_module.model.pruned_dense import PrunedDense


class Prune(Callback):
    """Remove the smallest weights of each `PrunedDense` layer by its schedule.

    The loop ends a call of the graph at each step where a mask is due. The state is in the masks,
    which a checkpoint saves with the model.

    Example:
        TrainingLoop(step, data, epochs=3, callbacks=[Prune(model)]).fit()
    """

    def __init__(self, model: keras.Model) -> None:
        """Find the layers; raise ValueError if the model has none, or is not built."""
        self.layers = [each for each in model._flatten_layers() if isinstance(each, PrunedDense)]
        if not self.layers or not all(each.built for each in self.layers):
            raise ValueError(
                f"model={model.name!r} has no built PrunedDense: call it first, or leave Prune out."
            )

    def steps_until_due(self, step: int) -> int | None:
        """Return the steps until the next update of a mask; None after the last one."""
        found = (layer.steps_until_due(step) for layer in self.layers)
        return min((steps for steps in found if steps is not None), default=None)

    def on_loop(self, progress: LoopProgress) -> None:
        """Update the masks that are due."""
        for layer in self.layers:
            layer.prune(progress.step)

    def facts(self) -> dict[str, Json]:
        """Return the schedules, in the order of the layers."""
        return {"schedules": [[x.sparsity, x.begin_step, x.end_step, x.every] for x in self.layers]}
