"""Create a tf.distribute strategy by its name, or serve a chief that has parameter servers."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import logging

from shared_core.nearest import nearest
from trainer_module.common.user_values import check_positive_int
from trainer_module.devices.cluster import (
    Cluster,
    check_own_port,
    cluster_of_environment,
    split_address,
)

_STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "parameter_server")
_FAIL_FAST = "use_caller"  # gRPC reports a lost task instead of waiting for it forever
_SECONDS_BETWEEN_CHECKS = 1.0
# The chief's server listens until its process ends.
_CHECKS_UNTIL_GONE = 3


def create_strategy(
    name: str = "auto",
    *,
    logical_devices: int | None = None,
    start_timeout_seconds: float = 60.0,
    worker_timeout_seconds: float = 60.0,
) -> tf.distribute.Strategy:
    """Return the strategy of that name, for the devices of this machine or of all workers.

    Args:
        name: "one_device", "mirrored" (every GPU; without one, every logical CPU device),
            "multi_worker" (the devices of all workers in TF_CONFIG; call it before anything else
            uses TensorFlow), "parameter_server" (see `ParameterServerStep`; on workers and servers
            this function serves the chief and then exits the process), or "auto":
            parameter_server if TF_CONFIG has servers, multi_worker if it has several
            workers, mirrored for more than one GPU or `logical_devices` above 1, otherwise
            one_device. The log shows the choice of auto.
        logical_devices: Number of logical CPU devices of each process, for "mirrored" and
            "multi_worker" without GPUs; None: the configured ones. They share the machine's cores.
        start_timeout_seconds: How long to wait for all workers.
        worker_timeout_seconds: How long a worker may send no sign of life before all end.

    Raises:
        ValueError: An unknown name, or one that contradicts TF_CONFIG; workers that differ; or
            TensorFlow already runs with other logical devices.
        WorkerLost: Not all workers connected in time.
        SystemExit: 0, on a worker or parameter server when the chief has ended.
    """
    check_strategy(name)
    cluster = cluster_of_environment()
    if logical_devices is not None:
        configure_logical_devices(logical_devices)
    if name == "auto":
        name, why = _resolve_auto(cluster, logical_devices)
        logging.info("strategy: auto is %s: %s", name, why)
    if name == "parameter_server":
        return _parameter_server_strategy(cluster, start_timeout_seconds=start_timeout_seconds)
    if name == "multi_worker":
        if cluster is None:
            raise ValueError(
                "strategy='multi_worker' needs TF_CONFIG, which names the workers; the platform "
                "sets it. For a trial on this machine: python -m trainer_module.launch --workers "
                "2 -- python my_program.py"
            )
        if len(cluster.workers) > 1:
            from trainer_module.devices.multi_worker import multi_worker_strategy

            return multi_worker_strategy(
                logical_devices=logical_devices,
                start_timeout_seconds=start_timeout_seconds,
                worker_timeout_seconds=worker_timeout_seconds,
            )
        name, why = _resolve_auto(None, logical_devices)
        logging.info("strategy: TF_CONFIG has one worker, which trains by %s: %s", name, why)
    gpus = tf.config.list_logical_devices("GPU")
    cpus = tf.config.list_logical_devices("CPU")
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
    """Raise an error for a strategy that cannot be created here; start nothing."""
    if name not in _STRATEGIES:
        raise ValueError(f"strategy={name!r}: {nearest(name, _STRATEGIES)}")
    cluster = cluster_of_environment()
    if cluster is not None and cluster.has_parameter_servers:
        if name not in ("auto", "parameter_server"):
            raise ValueError(
                f"strategy={name!r} with parameter servers in TF_CONFIG, which would have nothing "
                "to do: use 'parameter_server' or 'auto', or leave them out."
            )
        return
    workers = 1 if cluster is None else len(cluster.workers)
    if workers > 1 and name not in ("auto", "multi_worker"):
        raise ValueError(
            f"strategy={name!r} with {workers} workers in TF_CONFIG: each would train its own "
            "model; use 'multi_worker' or 'auto', or unset TF_CONFIG to train on this machine "
            "alone."
        )


def _resolve_auto(cluster: Cluster | None, logical_devices: int | None) -> tuple[str, str]:
    """Return the strategy for "auto" and the reason."""
    if cluster is not None and cluster.has_parameter_servers:
        return "parameter_server", "TF_CONFIG has parameter servers"
    if cluster is not None and len(cluster.workers) > 1:
        return "multi_worker", f"TF_CONFIG has {len(cluster.workers)} workers"
    gpus = len(tf.config.list_logical_devices("GPU"))
    if gpus > 1:
        return "mirrored", f"TensorFlow sees {gpus} GPUs"
    if (logical_devices or 1) > 1:
        return "mirrored", f"logical_devices asks for {logical_devices} CPU devices"
    return "one_device", "TensorFlow sees " + ("one GPU" if gpus else "no GPU")


def configure_logical_devices(count: int) -> None:
    """Split the CPU into `count` logical devices, before TensorFlow first uses one."""
    check_positive_int("logical_devices", count)
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
                f"logical_devices={count}, but TensorFlow already runs in this process with "
                f"{have}: call trainer_module.prepare_process(config) before anything else "
                "uses TensorFlow, or leave logical_devices out."
            ) from None


def configure_intra_op_threads(count: int) -> None:
    """Give each CPU operation of this process `count` threads, before TensorFlow is first used."""
    check_positive_int("intra_op_threads", count)
    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
    except RuntimeError:
        have = tf.config.threading.get_intra_op_parallelism_threads() or "its default"
        raise ValueError(
            f"intra_op_threads={count}, but TensorFlow already runs in this process with {have}: "
            "call trainer_module.prepare_process(config) before anything else uses TensorFlow, or "
            "leave intra_op_threads out."
        ) from None


def grow_gpu_memory() -> None:
    """Let TensorFlow allocate GPU memory as needed, not all at once, before it uses a GPU."""
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


def _parameter_server_strategy(
    cluster: Cluster | None, *, start_timeout_seconds: float
) -> tf.distribute.Strategy:
    """Return the strategy on the chief; on workers and servers, serve it and end the process.

    Raises:
        ValueError: TF_CONFIG has no chief, worker or server, or not all tasks started in time.
        SystemExit: 0, on a worker or server, when the chief has ended.
    """
    roles = ("chief", "worker", "ps")
    if cluster is None or not all(cluster.addresses.get(role) for role in roles):
        raise ValueError(
            "strategy='parameter_server' needs TF_CONFIG, which names a chief, workers and servers "
            "(ps); the platform sets it. For a trial on this machine: python -m "
            "trainer_module.launch --workers 2 --parameter-servers 1 -- python my_program.py"
        )
    if cluster.is_served:
        serve_until_chief_exits(cluster, start_timeout_seconds=start_timeout_seconds)
        sys.exit(0)
    os.environ.setdefault("GRPC_FAIL_FAST", _FAIL_FAST)
    _wait_for_tasks(cluster, ("ps", "worker"), start_timeout_seconds)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


def serve_until_chief_exits(
    cluster: Cluster,
    *,
    start_timeout_seconds: float = 60.0,
    is_done: Callable[[], bool] = lambda: False,
) -> None:
    """Serve the chief until it exits, or until `is_done` returns True."""
    os.environ.setdefault("GRPC_FAIL_FAST", _FAIL_FAST)
    check_own_port(cluster)
    addresses = {role: list(found) for role, found in cluster.addresses.items()}
    server = tf.distribute.Server(
        tf.train.ClusterSpec(addresses), job_name=cluster.role, task_index=cluster.index
    )
    chief = cluster.addresses["chief"][0]
    logging.info("%s %d serves the chief, %s", cluster.role, cluster.index, chief)
    _wait_for_tasks(cluster, ("chief",), start_timeout_seconds)
    missed = 0
    while missed < _CHECKS_UNTIL_GONE and not is_done():
        time.sleep(_SECONDS_BETWEEN_CHECKS)
        missed = 0 if _listens(chief) else missed + 1
    del server
    logging.info("The chief has ended, and so does %s %d", cluster.role, cluster.index)


def _listens(address: str) -> bool:
    """Return whether something listens at `host:port`."""
    try:
        with socket.create_connection(split_address(address), timeout=5):
            return True
    except OSError:
        return False


def _wait_for_tasks(cluster: Cluster, roles: Sequence[str], timeout_seconds: float) -> None:
    """Wait until all tasks of these roles listen; TensorFlow would wait forever."""
    deadline = time.monotonic() + timeout_seconds
    missing = [
        (role, index, address)
        for role in roles
        for index, address in enumerate(cluster.addresses.get(role, ()))
    ]
    while missing := [task for task in missing if not _listens(task[2])]:
        if time.monotonic() > deadline:
            names = ", ".join(f"{role} {index} ({address})" for role, index, address in missing)
            raise ValueError(
                f"{names} did not start within start_timeout_seconds={timeout_seconds:g}: see its "
                "log, whether it started at all, and whether this process reaches its address; "
                "then start all again."
            )
        time.sleep(0.2)
