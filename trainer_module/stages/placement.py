"""Assign devices to the stages of each replica, and move variables to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import Gradient, Variable


def stage_strategy(stages: int, devices: Sequence[str] | None = None) -> tf.distribute.Strategy:
    """Return a strategy for a `StagedModel` with several replicas.

    Args:
        stages: Number of stages of the model.
        devices: Devices of the stages of all replicas, as for `StagedModel`. Their number divided
            by `stages` is the number of replicas. None: as for `StagedModel`.

    Raises:
        ValueError: The number of devices is not a multiple of the number of stages.
    """
    devices = [_known_device(name) for name in devices or _local_devices()]
    if stages < 1 or len(devices) % stages:
        raise ValueError(
            f"devices={devices}: give a multiple of {stages} devices, one for each stage of each "
            "replica."
        )
    first = devices[::stages]
    if any("CPU" in name for name in first):
        reduction = tf.distribute.ReductionToOneDevice()  # see `create_strategy`
        return tf.distribute.MirroredStrategy(first, cross_device_ops=reduction)
    return tf.distribute.MirroredStrategy(first)


class _Devices:
    """Stands in for a variable as the `colocate_with` argument of tf.distribute."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = tuple(devices)  # read by MirroredStrategy
        self.device = devices[0]  # read by OneDeviceStrategy


def move(stage: keras.layers.Layer, devices: Sequence[str]) -> None:
    """Recreate a stage's variables on its devices, with their current values."""

    def create_colocated(next_creator: Callable[..., tf.Variable], **kwargs: object) -> tf.Variable:
        return next_creator(**{**kwargs, "colocate_with": _Devices(devices)})

    values = [variable.numpy() for variable in stage.variables]
    for variable, value in zip(stage.variables, values, strict=True):
        if tf.distribute.has_strategy():
            with tf.variable_creator_scope(create_colocated):
                variable._initialize(value)
        else:
            with tf.device(devices[0]):
                variable._initialize(value)


def colocate_updates(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer compute each variable's update on the device of the variable.

    MirroredStrategy does this automatically. Without a strategy, or on one device, TensorFlow would
    compute all updates on the first device, and hold a stage's slots there during the update.
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


def _local_devices() -> list[str]:
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in found]


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


def stage_devices(devices: Sequence[str] | None, stages: int, replicas: int) -> list[str]:
    """Return the full names of the devices of all replicas' stages.

    Raises:
        ValueError: A device does not exist, or the number of devices is not stages * replicas.
    """
    wanted = stages * replicas
    known = [_known_device(name) for name in (_local_devices() if devices is None else devices)]
    if len(known) < wanted or (devices is not None and len(known) > wanted):
        raise ValueError(
            f"{stages} stages on {replicas} replica(s) need {wanted} devices, and there are "
            f"{len(known)}: {', '.join(known)}. Give one for each stage of each replica (the same "
            "one may occur twice), or use fewer stages."
        )
    return known[:wanted]


def check_strategy_of_stages(
    strategy: tf.distribute.Strategy, devices: list[str], stages: int
) -> None:
    """Raise ValueError if the strategy's replicas are not on the devices of the first stages."""
    if not tf.distribute.has_strategy():
        return
    if isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return
    if not isinstance(strategy, tf.distribute.MirroredStrategy):
        raise ValueError(
            f"a StagedModel assigns its stages to devices, so {type(strategy).__name__} cannot: "
            "create the model outside of any strategy, under 'one_device', or for several "
            f"replicas under stage_strategy(stages={stages})."
        )
    first = [_known_device(name) for name in strategy.extended.worker_devices]
    if first != devices[::stages]:
        raise ValueError(
            f"the strategy's replicas are on {', '.join(first)}, and their first stages on "
            f"{', '.join(devices[::stages])}: take stage_strategy(stages={stages}, devices=...)."
        )
