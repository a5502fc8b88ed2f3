"""Which device each stage of each replica has, and variables that are put there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import Gradient, Variable


def stage_strategy(stages: int, devices: Sequence[str] | None = None) -> tf.distribute.Strategy:
    """Returns the strategy under which a `StagedModel` has several replicas.

    Args:
        stages: Of the model.
        devices: Of all replicas' stages, as `StagedModel` takes them; so many replicas as they
            suffice for.

    Raises:
        ValueError: Their number is no multiple of that of the stages.
    """
    devices = [_known_device(name) for name in devices or _local_devices()]
    if stages < 1 or len(devices) % stages:
        raise ValueError(
            f"devices={devices}: {stages} stages on N replicas take N times {stages} devices; name "
            "so many."
        )
    first = devices[::stages]
    if any("CPU" in name for name in first):
        reduction = tf.distribute.ReductionToOneDevice()  # see `create_strategy`
        return tf.distribute.MirroredStrategy(first, cross_device_ops=reduction)
    return tf.distribute.MirroredStrategy(first)


class _Devices:
    """What tf.distribute takes for a variable that others are to be beside."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = tuple(devices)  # what MirroredStrategy asks for
        self.device = devices[0]  # and what OneDeviceStrategy does


def move(stage: keras.layers.Layer, devices: Sequence[str]) -> None:
    """Makes a stage's variables anew, with the values that they have, on its devices."""

    def beside(next_creator: Any, **kwargs: Any) -> Any:
        return next_creator(**{**kwargs, "colocate_with": _Devices(devices)})

    values = [variable.numpy() for variable in stage.variables]
    for variable, value in zip(stage.variables, values, strict=True):
        if tf.distribute.has_strategy():
            with tf.variable_creator_scope(beside):
                variable._initialize(value)
        else:
            with tf.device(devices[0]):
                variable._initialize(value)


def colocate_updates(optimizer: keras.optimizers.Optimizer) -> None:
    """Lets an optimizer compute each variable's update where the variable is.

    MirroredStrategy does so by itself; without a strategy, or on one device, TensorFlow would
    compute all of them on the first device, and hold a stage's slots there for the time.
    """
    update_step, apply_weight_decay = optimizer.update_step, optimizer._apply_weight_decay

    def update_beside(gradient: Gradient, variable: Variable, learning_rate: Any) -> Any:
        with tf.device(variable.device):
            return update_step(gradient, variable, learning_rate)

    def decay_beside(variables: Sequence[Variable]) -> None:
        for variable in variables:
            with tf.device(getattr(variable, "value", variable).device):
                apply_weight_decay([variable])

    optimizer.update_step = update_beside
    optimizer._apply_weight_decay = decay_beside


def _local_devices() -> list[str]:
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in found]


def _known_device(name: str) -> str:
    """Returns the device's full name."""
    if "/job:" in name and "/job:localhost" not in name:
        return name  # of another process
    names = {d.name.rpartition("device:")[2]: d.name for d in tf.config.list_logical_devices()}
    short = name.rpartition("device:")[2].strip("/").upper()
    if short not in names:
        raise ValueError(
            f"device {name!r} is not there; {nearest(short, names)}. create_strategy's "
            "logical_devices cuts the CPU into several."
        )
    return names[short]


def stage_devices(devices: Sequence[str] | None, stages: int, replicas: int) -> list[str]:
    """Returns the full name of each replica's stages' devices.

    Raises:
        ValueError: One is not there, or their number is another one.
    """
    wanted = stages * replicas
    known = [_known_device(name) for name in (_local_devices() if devices is None else devices)]
    if len(known) < wanted or (devices is not None and len(known) > wanted):
        raise ValueError(
            f"{stages} stages on {replicas} replica(s) take {wanted} devices, and there are "
            f"{len(known)}: {', '.join(known)}. Name one for each stage of each replica "
            "(one may be named twice), or make fewer stages."
        )
    return known[:wanted]


def check_strategy_of_stages(
    strategy: tf.distribute.Strategy, devices: list[str], stages: int
) -> None:
    """Raises ValueError for a strategy whose replicas are not where the first stages are."""
    if not tf.distribute.has_strategy():
        return
    if isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return
    if not isinstance(strategy, tf.distribute.MirroredStrategy):
        raise ValueError(
            f"a StagedModel under {type(strategy).__name__}: its stages have devices of their own. "
            "Make it outside of any strategy, under 'one_device', or for several replicas under "
            f"stage_strategy(stages={stages})."
        )
    first = [_known_device(name) for name in strategy.extended.worker_devices]
    if first != devices[::stages]:
        raise ValueError(
            f"the strategy's replicas are on {', '.join(first)}, and their first stages on "
            f"{', '.join(devices[::stages])}: take stage_strategy(stages={stages}, devices=...)."
        )
