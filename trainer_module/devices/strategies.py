"""Where the replicas are: a tf.distribute strategy by its name in the configuration."""

from __future__ import annotations

import json
import os
from typing import Literal

import tensorflow as tf

from trainer_module.common.names import nearest

STRATEGIES = ("auto", "one_device", "mirrored")
DeviceKind = Literal["CPU", "GPU"]
_NOT_YET = ("multi_worker", "parameter_server", "tpu")


def create_strategy(
    name: str = "auto", *, logical_devices: int | None = None
) -> tf.distribute.Strategy:
    """Returns the strategy of that name for the devices of this machine.

    Args:
        name: "one_device", "mirrored" (every GPU; without one, every logical CPU device), or
            "auto": mirrored when there is more than one GPU, or when `logical_devices` asks for
            more than one CPU device; else one_device.
        logical_devices: Number of logical CPU devices for "mirrored" without GPUs; None takes
            those that are configured. They share the machine's cores.

    Raises:
        ValueError: An unknown name or one that this version does not have, TF_CONFIG with several
            workers, or logical devices asked for after TensorFlow has started with others.
    """
    check_strategy(name)
    if logical_devices is not None:
        configure_logical_devices(logical_devices)
    gpus = tf.config.list_logical_devices("GPU")
    cpus = tf.config.list_logical_devices("CPU")
    if name == "auto":
        name = "mirrored" if len(gpus) > 1 or (logical_devices or 1) > 1 else "one_device"
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    if gpus:
        return tf.distribute.MirroredStrategy([device.name for device in gpus])
    # CPU devices of one process share memory: a collective ring between them gains nothing, and
    # fails once a second strategy of another size exists, since TF numbers both groups 1.
    return tf.distribute.MirroredStrategy(
        [device.name for device in cpus[: logical_devices or len(cpus)]],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def check_strategy(name: str) -> None:
    """Refuses a strategy that cannot be made here; starts nothing.

    Raises:
        ValueError: An unknown name or one that this version does not have, or TF_CONFIG with
            several workers.
    """
    if name in _NOT_YET:
        raise ValueError(
            f"trainer.strategy={name!r} is not available yet: use 'mirrored' for several devices "
            "of one machine, or 'one_device'."
        )
    if name not in STRATEGIES:
        raise ValueError(f"trainer.strategy={name!r}: {nearest(name, STRATEGIES)}")
    workers = _workers()
    if workers > 1:
        raise ValueError(
            f"trainer.strategy={name!r} with {workers} workers in TF_CONFIG: training on several "
            "workers is not available yet; unset TF_CONFIG to train on this machine alone."
        )


def configure_logical_devices(count: int) -> None:
    """Cuts the CPU into `count` logical devices; it must come before TensorFlow first uses one.

    Raises:
        ValueError: `count` below 1, or TensorFlow already runs with fewer devices.
    """
    if count < 1:
        raise ValueError(f"trainer.logical_devices={count}: use at least 1.")
    physical = tf.config.list_physical_devices("CPU")[0]
    configured = tf.config.get_logical_device_configuration(physical)
    if configured is not None and len(configured) >= count:
        return
    try:
        tf.config.set_logical_device_configuration(
            physical, [tf.config.LogicalDeviceConfiguration()] * count
        )
    except RuntimeError:
        have = len(tf.config.list_logical_devices("CPU"))
        if have < count:
            raise ValueError(
                f"trainer.logical_devices={count}, but TensorFlow already runs in this process "
                f"with {have}: call trainer_module.prepare_process(config) before anything else "
                "uses TensorFlow, or leave logical_devices out."
            ) from None


def configure_intra_op_threads(count: int) -> None:
    """Gives each CPU operation of this process `count` threads; before TensorFlow is first used.

    Raises:
        ValueError: `count` below 1, or TensorFlow already runs with another number.
    """
    if count < 1:
        raise ValueError(f"trainer.intra_op_threads={count}: use at least 1.")
    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
    except RuntimeError:
        have = tf.config.threading.get_intra_op_parallelism_threads() or "its default"
        raise ValueError(
            f"trainer.intra_op_threads={count}, but TensorFlow already runs in this process with "
            f"{have}: call trainer_module.prepare_process(config) before anything else uses "
            "TensorFlow, or leave intra_op_threads out."
        ) from None


def grow_gpu_memory() -> None:
    """Lets TensorFlow take GPU memory as it needs it, not all at once; before it uses a GPU.

    Raises:
        ValueError: TensorFlow already holds all memory of the GPUs.
    """
    for gpu in tf.config.list_physical_devices("GPU"):
        try:
            tf.config.experimental.set_memory_growth(gpu, True)
        except RuntimeError:
            if os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH") != "true":
                raise ValueError(
                    "TensorFlow already holds all memory of the GPUs in this process, so that no "
                    "other process can use them: set TF_FORCE_GPU_ALLOW_GROWTH=true, or call "
                    "trainer_module.prepare_process(config) before anything else uses TensorFlow."
                ) from None


def replica_kind(strategy: tf.distribute.Strategy) -> DeviceKind:
    """Returns where the strategy's replicas compute."""
    if _is_default(strategy):
        return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return (
        "GPU" if any("GPU" in name.upper() for name in strategy.extended.worker_devices) else "CPU"
    )


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns how many of the strategy's replicas this process computes."""
    return 1 if _is_default(strategy) else len(strategy.extended.worker_devices)


def replica_devices(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Returns "CPU:0", "CPU:1", ... or "GPU:0", ...: the device of each replica.

    Raises:
        ValueError: The replicas are those of several processes, or on another kind of device.
    """
    if _is_default(strategy):
        return ("GPU:0",) if tf.config.list_logical_devices("GPU") else ("CPU:0",)
    specs = [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    names = tuple(f"{spec.device_type.upper()}:{spec.device_index}" for spec in specs)
    kinds = {name.partition(":")[0] for name in names}
    if len(names) != strategy.num_replicas_in_sync or kinds not in ({"CPU"}, {"GPU"}):
        raise ValueError(
            f"the strategy's {strategy.num_replicas_in_sync} replicas are on "
            f"{', '.join(sorted(set(names)))} of this process: only those of one process, all CPU "
            "or all GPU devices, are known here."
        )
    return names


def _is_default(strategy: tf.distribute.Strategy) -> bool:
    return type(strategy.extended).__name__ == "_DefaultDistributionExtended"


def _workers() -> int:
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return len(cluster.get("worker", [])) + len(cluster.get("chief", []))
