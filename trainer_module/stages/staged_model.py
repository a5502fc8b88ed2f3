"""A Keras model of stages, each with its variables on a separate device."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.checks.compiled import each_optimizer
from trainer_module.common.tensors import Gradient, Tensors, Variable
from trainer_module.stages.recompute import custom_gradient, uses_custom_gradient
from trainer_module.window.spec import Placement, Result


def _move(stage: keras.layers.Layer, device: str) -> None:
    """Recreate a stage's variables on its device, with their current values."""

    def create_colocated(next_creator: Callable[..., tf.Variable], **kwargs: object) -> tf.Variable:
        # OneDeviceStrategy reads nothing of the argument but its device.
        return next_creator(**{**kwargs, "colocate_with": types.SimpleNamespace(device=device)})

    values = [variable.numpy() for variable in stage.variables]
    for variable, value in zip(stage.variables, values, strict=True):
        if tf.distribute.has_strategy():
            with tf.variable_creator_scope(create_colocated):
                variable._initialize(value)
        else:
            with tf.device(device):
                variable._initialize(value)


def _colocate_updates(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer compute each variable's update on the device of the variable.

    TensorFlow would compute all updates on the first device, and hold a stage's slots there.
    """
    update_step, apply_weight_decay = optimizer.update_step, optimizer._apply_weight_decay

    def colocated_update_step(
        gradient: Gradient, variable: Variable, learning_rate: tf.Tensor
    ) -> None:
        with tf.device(variable.device):
            update_step(gradient, variable, learning_rate)

    def colocated_weight_decay(variables: Sequence[Variable]) -> None:
        for variable in variables:
            with tf.device(getattr(variable, "value", variable).device):
                apply_weight_decay([variable])

    optimizer.update_step = colocated_update_step
    optimizer._apply_weight_decay = colocated_weight_decay


def _known_device(name: str) -> str:
    """Return the full name of a device, or raise ValueError if it does not exist."""
    if "/job:" in name and "/job:localhost" not in name:
        return name  # a device of another process
    names = {d.name.rpartition("device:")[2]: d.name for d in tf.config.list_logical_devices()}
    short = name.rpartition("device:")[2].strip("/").upper()
    if short not in names:
        raise ValueError(
            f"device {name!r} does not exist; {nearest(short, names)}. To split the CPU into "
            "several devices, use create_strategy(logical_devices=...)."
        )
    return names[short]


def _stage_devices(devices: Sequence[str] | None, stages: int) -> list[str]:
    """Return the full names of the stages' devices."""
    if devices is None:
        found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        known = [device.name for device in found]
    else:
        known = [_known_device(name) for name in devices]
    if len(known) < stages or (devices is not None and len(known) > stages):
        raise ValueError(
            f"{stages} stages need {stages} devices, and there are {len(known)}: "
            f"{', '.join(known)}. Give one for each stage (the same one may occur twice), or use "
            "fewer stages."
        )
    return known[:stages]


class _Stage(keras.layers.Layer):
    """A layer that runs forward and backward on the device of its variables.

    If it is `recomputed`, the backward pass computes its activations again.
    """

    def __init__(self, inner: keras.layers.Layer, device: str, *, recomputed: bool = False) -> None:
        """Wrap a built layer or model."""
        # The inputs are the outputs of the previous stage and are not cast here.
        super().__init__(name=f"stage_of_{inner.name}", dtype=inner.dtype_policy, autocast=False)
        self.inner = inner
        self.device = device
        self.recomputed = recomputed
        self.supports_masking = True
        self.built = True

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Return the stage's outputs."""
        if any(isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(inputs)):
            return self.inner(inputs, training=training)
        if training and uses_custom_gradient(self):
            return custom_gradient(
                self,
                self._run,
                self._run,
                (inputs,),
                {},
                again=self.recomputed,
                device=self.device,
            )
        with tf.device(self.device):
            return self.inner(inputs, training=training)

    def _run(self, inputs: Tensors) -> Tensors:
        return self.inner(inputs, training=True)

    def compute_output_spec(self, *args: object, **kwargs: object) -> Tensors:
        """Return the output spec of the inner layer."""
        return self.inner.compute_output_spec(*args, **kwargs)

    def compute_mask(self, inputs: Tensors, previous_mask: Tensors) -> None:
        """Return None, because the inner layer has already set masks on its outputs."""


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
            devices: One device per stage, such as "GPU:0" or "CPU:1". None: the GPUs, or the
                logical CPU devices if there are none, in order.
            recompute: Names of stages whose activations the backward pass recomputes.
            name: Name of the model.

        Raises:
            ValueError: There are no stages, the first stage has no inputs, the number of devices
                does not fit, a device does not exist, a name in `recompute` is not a stage's, two
                stages have the same name or share a variable, or the strategy has replicas.
        """
        stages = list(stages)
        _check_stages(stages)
        strategy = tf.distribute.get_strategy()
        one_device = isinstance(strategy, tf.distribute.OneDeviceStrategy)
        if tf.distribute.has_strategy() and not one_device:
            raise ValueError(
                f"a StagedModel assigns its stages to devices, so {type(strategy).__name__} cannot:"
                " create the model outside of any strategy, or under 'one_device'."
            )
        devices = _stage_devices(devices, len(stages))
        again, names = set(recompute), [stage.name for stage in stages]
        for wrong in sorted(again - set(names)):
            raise ValueError(f"recompute={wrong!r} is not a stage; {nearest(wrong, names)}")
        inputs = _new_inputs(_inputs_of(stages[0]))
        outputs = inputs
        for number, (stage, device) in enumerate(zip(stages, devices, strict=True)):
            stage(outputs)  # builds it
            _check_shared(stages[: number + 1])
            _move(stage, device)
            outputs = _Stage(stage, device, recomputed=stage.name in again)(outputs)
        super().__init__(inputs, outputs, name=name)

    @property
    def placement(self) -> _StagePlacement:
        """The placement of the variables' sums and updates."""
        return _StagePlacement(self)

    @property
    def jit_compile_error(self) -> str:
        """The reason why XLA cannot compile the model."""
        return (
            f"XLA compiles for one device, and model {self.name!r} has stages on several; leave "
            "jit_compile off."
        )

    @property
    def stages(self) -> list[_Stage]:
        """The stages, in order."""
        return [layer for layer in self.layers if isinstance(layer, _Stage)]

    def in_one_piece(self) -> keras.Model:
        """Return a plain model of the same layers and variables, without stages and devices."""
        outputs = inputs = _new_inputs(_inputs_of(self))
        for stage in self.stages:
            outputs = stage.inner(outputs)
        return keras.Model(inputs, outputs, name=self.name)


class _StagePlacement(Placement):
    """The placement of a `StagedModel`: sums and updates on the device of the variable's stage."""

    def __init__(self, model: StagedModel) -> None:
        """Create the placement of a model's variables."""
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
                _colocate_updates(one)


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


def split_model(model: keras.Model, after: Sequence[str]) -> list[keras.Model]:
    """Return the parts of a model; the input of each part is the output of the previous one.

    The parts share the model's layers and variables.

    Args:
        model: A Sequential or functional model.
        after: Names of the layers that end a part, in order. The later parts may only use the
            output of this layer.

    Raises:
        ValueError: The model is neither Sequential nor functional, a name is not a layer's, the
            names are not in order, or a later layer uses more than the output of the named layer.
    """
    if not isinstance(model, keras.Sequential) and not getattr(model, "inputs", None):
        raise ValueError(
            f"model {model.name!r} is neither Sequential nor functional: create the stages "
            "yourself."
        )
    names = [layer.name for layer in model.layers]
    for name in after:
        if name not in names:
            raise ValueError(
                f"after={name!r} is not a layer of model {model.name!r}; {nearest(name, names)}"
            )
    begin = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    outputs = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
    parts = []
    for number, name in enumerate(after):
        end = model.get_layer(name).output
        parts.append(_part(model, begin, end, number, after))
        begin = end
    parts.append(_part(model, begin, outputs, len(after), after))
    return parts


def _part(
    model: keras.Model, begin: object, end: object, number: int, after: Sequence[str]
) -> keras.Model:
    try:
        return keras.Model(begin, end, name=f"{model.name}_{number + 1}")
    except ValueError as error:
        raise ValueError(
            f"after={list(after)}: part {number + 1} of model {model.name!r} uses more than the "
            "output of the layer before it, or the names are not in order. Split after a layer "
            "whose output is the only input of the rest, or create the stages yourself."
        ) from error
