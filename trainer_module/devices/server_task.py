"""Serve a chief as one of its workers or parameter servers, until it exits."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable

import tensorflow as tf
from absl import logging

from trainer_module.devices.cluster import Cluster, split_address
from trainer_module.devices.rendezvous import check_own_port

_SECONDS_BETWEEN_CHECKS = 1.0
# The chief's server listens until its process ends.
_CHECKS_UNTIL_GONE = 3


class _ChiefMissing(RuntimeError):
    """The chief did not start in time."""


def parameter_server_strategy(
    cluster: Cluster | None, *, start_timeout_seconds: float
) -> tf.distribute.Strategy:
    """Return the strategy on the chief; on workers and servers, serve it and end the process.

    Raises:
        ValueError: TF_CONFIG has no chief, worker or server, or not all tasks started in time.
        ChiefMissing: On a worker or server: the chief did not start in time.
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
    _fail_fast_on_lost_tasks()
    _wait_for_tasks(cluster, start_timeout_seconds)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


def serve_until_chief_exits(
    cluster: Cluster,
    *,
    start_timeout_seconds: float = 60.0,
    is_done: Callable[[], bool] = lambda: False,
) -> None:
    """Serve the chief until it exits, or until `is_done` returns True.

    Raises:
        ChiefMissing: The chief did not start in time.
        ValueError: Another program uses the port of this task.
    """
    _fail_fast_on_lost_tasks()
    check_own_port(cluster)
    addresses = {role: list(found) for role, found in cluster.addresses.items()}
    server = tf.distribute.Server(
        tf.train.ClusterSpec(addresses), job_name=cluster.role, task_index=cluster.index
    )
    chief = cluster.addresses["chief"][0]
    logging.info("%s %d serves the chief, %s", cluster.role, cluster.index, chief)
    deadline = time.monotonic() + start_timeout_seconds
    while not _listens(chief):
        if time.monotonic() > deadline:
            raise _ChiefMissing(
                f"the chief ({chief}) did not start within "
                f"start_timeout_seconds={start_timeout_seconds:g}: see its log, whether it started "
                "at all, and whether this process reaches its address."
            )
        time.sleep(_SECONDS_BETWEEN_CHECKS)
    missed = 0
    while missed < _CHECKS_UNTIL_GONE and not is_done():
        time.sleep(_SECONDS_BETWEEN_CHECKS)
        missed = 0 if _listens(chief) else missed + 1
    del server
    logging.info("The chief has ended, and so does %s %d", cluster.role, cluster.index)


def _fail_fast_on_lost_tasks() -> None:
    """Let gRPC report a lost task instead of waiting for it forever."""
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")


def _listens(address: str) -> bool:
    """Return whether something listens at `host:port`."""
    try:
        with socket.create_connection(split_address(address), timeout=5):
            return True
    except OSError:
        return False


def _wait_for_tasks(cluster: Cluster, timeout_seconds: float) -> None:
    """Wait until all workers and servers listen; TensorFlow would wait forever.

    Raises:
        ValueError: Some tasks did not start in time.
    """
    deadline = time.monotonic() + timeout_seconds
    missing = [
        (role, index, address)
        for role in ("ps", "worker")
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
