"""A Keras model of stages, each with its variables on a separate device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.checks.compiled import each_optimizer
from trainer_module.common.tensors import Tensors
from trainer_module.stages.placement import (
    check_strategy_of_stages,
    colocate_updates,
    move,
    stage_devices,
)
from trainer_module.stages.stage import Stage
from trainer_module.window.spec import Placement, Result


class StagedModel(keras.Model):
    """A sequence of stages, each on one device; a window's micro-batches stream through them.

        outputs = stage_n(... stage_2(stage_1(inputs)))

    While stage 2 processes a micro-batch, stage 1 processes the next one: as many micro-batches are
    in progress as there are stages. `TrainStep` and `accumulate_gradients` accept it as any model,
    and the gradient is that of the model without stages. The model uses the given layers and their
    variables, and moves the variables to the devices of the stages. `in_one_piece` returns a plain
    model with the same layers.

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
        """Build the stages that are not built, and move each stage's variables to its device.

        Args:
            stages: Layers and models, the first with an `Input`. The input of each stage is the
                output of the previous one. `split_model` splits a model into stages.
            devices: One device per stage, such as "GPU:0" or "CPU:1". For N replicas N times as
                many: those of the first replica's stages, then those of the second's. None: the
                GPUs, or the logical CPU devices if there are none, in order.
            recompute: Names of stages whose activations the backward pass recomputes.
            name: Name of the model.

        Raises:
            ValueError: There are no stages, the first stage has no inputs, the number of devices
                does not fit, a device does not exist, a name in `recompute` is not a stage's, two
                stages have the same name or share a variable, or the strategy's replicas are not on
                the devices of the first stages.
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
        """The placement of the variables' sums and updates."""
        return StagePlacement(self)

    @property
    def jit_compile_error(self) -> str:
        """The reason why XLA cannot compile the model."""
        return (
            f"XLA compiles for one device, and model {self.name!r} has stages on several; leave "
            "jit_compile off."
        )

    @property
    def stages(self) -> list[Stage]:
        """The stages, in order."""
        return [layer for layer in self.layers if isinstance(layer, Stage)]

    def in_one_piece(self) -> keras.Model:
        """Return a plain model of the same layers and variables, without stages and devices."""
        outputs = inputs = _new_inputs(_inputs_of(self))
        for stage in self.stages:
            outputs = stage.inner(outputs)
        return keras.Model(inputs, outputs, name=self.name)


class StagePlacement(Placement):
    """The placement of a `StagedModel`: sums and updates on the device of the variable's stage."""

    def __init__(self, model: StagedModel) -> None:
        """Create the placement of a model's variables.

        Args:
            model: The model with the stages and their devices.
        """
        self._model = model

    @property
    def concurrent_passes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of stages: each stage processes a different micro-batch."""
        return len(self._model.stages)

    def map(self, function: Callable[..., Result], *lists: Sequence[object]) -> list[Result]:
        """Return the function's results, each computed on the device of the variable's stage."""
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
        """Make a built optimizer compute each update on the variable's device."""
        if len(self._model.stages) > 1:
            for one in each_optimizer(optimizer):
                colocate_updates(one)


def _inputs_of(model: keras.Model) -> Tensors:
    """Return a model's symbolic inputs; a Sequential has a single one."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _new_inputs(like: Tensors) -> Tensors:
    def new(tensor: keras.KerasTensor) -> keras.KerasTensor:
        return keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name)

    return tf.nest.map_structure(new, like)


def _check_stages(stages: list[keras.layers.Layer]) -> None:
    if not stages:
        raise ValueError("stages=[]: give at least one layer or model.")
    for stage in stages:
        if not isinstance(stage, keras.layers.Layer):
            raise ValueError(
                f"stages: {stage!r} is not a Keras layer or model. `split_model` splits a model "
                "into stages."
            )
    if not getattr(stages[0], "inputs", None):
        raise ValueError(
            f"stages: the first one, {stages[0].name!r}, has no inputs: give a functional model, "
            "or a Sequential that begins with keras.Input."
        )
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise ValueError(f"stages={names}: names repeat; give each stage another name.")


def _check_names(recompute: set[str], stages: Sequence[keras.layers.Layer]) -> None:
    names = [stage.name for stage in stages]
    for name in sorted(recompute - set(names)):
        raise ValueError(f"recompute={name!r} is not a stage; {nearest(name, names)}")


def _check_shared(stages: Sequence[keras.layers.Layer]) -> None:
    owner: dict[int, str] = {}
    for stage in stages:
        for variable in stage.variables:
            if owner.setdefault(id(variable), stage.name) != stage.name:
                raise ValueError(
                    f"variable {variable.path!r} is in the stages {owner[id(variable)]!r} and "
                    f"{stage.name!r}, but can be on one device only. Split the model elsewhere, so "
                    "that the layers that share it are in one stage."
                )
