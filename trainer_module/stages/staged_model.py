"""A Keras model made of stages, each with its variables on a device of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.several_optimizers import each_optimizer
from trainer_module.stages.placement import (
    check_strategy_of_stages,
    colocate_updates,
    move,
    stage_devices,
)
from trainer_module.stages.stage import Stage
from trainer_module.window.placement import Placement


class StagedModel(keras.Model):
    """Stages one after another, each on a device; a window's micro-batches stream through them.

        outputs = stage_n(... stage_2(stage_1(inputs)))

    While stage 2 has a micro-batch, stage 1 has the next one: as many are under way as there are
    stages. `TrainStep` and `accumulate_gradients` take it as any model, and the gradient is that
    of the model in one piece. The stages' layers are the ones that were given, and so are their
    variables, which now are on the stages' devices: `in_one_piece` is the plain model of them.

    Example:
        model = StagedModel([encoder, head], devices=["GPU:0", "GPU:1"])
        step = TrainStep(model, keras.optimizers.AdamW(1e-3), "mse", micro_batch_size=32)
    """

    def __init__(
        self,
        stages: Sequence[keras.layers.Layer],
        *,
        devices: Sequence[str] | None = None,
        recompute: Iterable[str] = (),
        name: str = "staged",
    ) -> None:
        """Builds what is not built, and moves each stage's variables to its device.

        Args:
            stages: Layers and models, the first one with an `Input`; each takes what the one
                before returns. `split_model` makes them of one model.
            devices: One for each stage, "GPU:0" or "CPU:1"; on N replicas N times as many: those of
                the first replica's stages, then those of the second's. None: the GPUs, else the
                logical CPU devices, in order.
            recompute: Names of stages whose activations are made anew in the backward pass.
            name: Of the model.

        Raises:
            ValueError: No stage, a first stage without inputs, too few devices or one that is not
                there, a name of no stage, a stage that updates state in training, or a strategy
                whose replicas are not on the first stages' devices.
        """
        stages = list(stages)
        _check_stages(stages)
        strategy = tf.distribute.get_strategy()
        replicas = strategy.num_replicas_in_sync
        devices = stage_devices(devices, len(stages), replicas)
        check_strategy_of_stages(strategy, devices, len(stages))
        again = set(recompute)
        _check_names(again, stages)
        inputs = _new_inputs(_inputs_of(stages[0]))
        outputs = inputs
        for number, stage in enumerate(stages):
            stage(outputs)  # builds it
            own = tuple(devices[number :: len(stages)])
            _check_shared(stages[: number + 1])
            move(stage, own)
            outputs = Stage(stage, own, recomputed=stage.name in again)(outputs)
        super().__init__(inputs, outputs, name=name)

    @property
    def placement(self) -> StagePlacement:
        """Where the sums and updates of the variables are computed."""
        return StagePlacement(self)

    @property
    def jit_compile_error(self) -> str:
        """Why XLA cannot compile the model."""
        return (
            f"XLA compiles for one device, and model {self.name!r} has stages on several; leave "
            "jit_compile off."
        )

    @property
    def stages(self) -> list[Stage]:
        """The stages, in order."""
        return [layer for layer in self.layers if isinstance(layer, Stage)]

    def in_one_piece(self) -> keras.Model:
        """Returns the model without its stages: the same layers and variables, and no devices."""
        outputs = inputs = _new_inputs(_inputs_of(self))
        for stage in self.stages:
            outputs = stage.inner(outputs)
        return keras.Model(inputs, outputs, name=self.name)


class StagePlacement(Placement):
    """The placement of a `StagedModel`: sums and updates on the device of the variable's stage."""

    def __init__(self, model: StagedModel) -> None:
        """Take the model, whose stages know their devices."""
        self._model = model

    @property
    def concurrent_passes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of stages: while the second has a micro-batch, the first has the next one."""
        return len(self._model.stages)

    def map(self, function: Callable[..., Any], *lists: Sequence[Any]) -> list[Any]:
        """Return the function of each variable's parts, on its stage's device on this replica."""
        device_of = {
            id(variable): stage.device
            for stage in self._model.stages
            for variable in stage.trainable_variables
        }
        found = []
        for variable, *parts in zip(self._model.trainable_variables, *lists, strict=True):
            with tf.device(device_of[id(variable)]):
                found.append(function(*parts))
        return found

    def prepare_optimizer(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Colocate the optimizer's updates with the variables."""
        if len(self._model.stages) > 1:
            for one in each_optimizer(optimizer):
                colocate_updates(one)


def _inputs_of(model: Any) -> Any:
    """Returns a model's symbolic inputs; a Sequential's is one."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _new_inputs(like: Any) -> Any:
    def new(tensor: Any) -> Any:
        return keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name)

    return tf.nest.map_structure(new, like)


def _check_stages(stages: list[Any]) -> None:
    if not stages:
        raise ValueError("stages=[]: give at least one layer or model.")
    for stage in stages:
        if not isinstance(stage, keras.layers.Layer):
            raise ValueError(
                f"stages: {stage!r} is no Keras layer or model; `split_model` makes stages of a "
                "model."
            )
    if not getattr(stages[0], "inputs", None):
        raise ValueError(
            f"stages: the first one, {stages[0].name!r}, has no inputs: give a functional model, "
            "or a Sequential that begins with keras.Input."
        )
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise ValueError(f"stages={names}: names repeat; give each its own.")


def _check_names(recompute: set[str], stages: Sequence[keras.layers.Layer]) -> None:
    names = [stage.name for stage in stages]
    for name in sorted(recompute - set(names)):
        raise ValueError(f"recompute={name!r} is no stage; {nearest(name, names)}")


def _check_shared(stages: Sequence[keras.layers.Layer]) -> None:
    owner: dict[int, str] = {}
    for stage in stages:
        for variable in stage.variables:
            if owner.setdefault(id(variable), stage.name) != stage.name:
                raise ValueError(
                    f"variable {variable.path!r} is in the stages {owner[id(variable)]!r} and "
                    f"{stage.name!r}, and can be on one device alone: cut the model elsewhere, so "
                    "that what shares it is one stage."
                )
