"""Read the tasks of a job from TF_CONFIG, without TensorFlow."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared_core.nearest import nearest
from trainer_module.common.json_values import Json

# Exit code of a process that ends because another one was lost. EX_TEMPFAIL of sysexits.h: the
# process has no error, and a restart may succeed.
EXIT_WORKER_LOST = 75

_ROLES = ("chief", "worker", "ps")


@dataclass(frozen=True)
class Cluster:
    """The tasks of a job, and the task of this process.

    Attributes:
        addresses: Role to the `host:port` of each of its tasks.
        role: Role of this process.
        index: Number of this process among those of its role.
    """

    addresses: Mapping[str, tuple[str, ...]]
    role: str
    index: int

    @property
    def workers(self) -> tuple[tuple[str, int, str], ...]:
        """(role, index, address) of all tasks that train together: the chief, if any, first."""
        return tuple(
            (role, index, address)
            for role in ("chief", "worker")
            for index, address in enumerate(self.addresses.get(role, ()))
        )

    @property
    def number(self) -> int:
        """Index of this process in `workers`; replicas are numbered in that order.

        Raises:
            ValueError: This process is not in `workers`.
        """
        for number, (role, index, _) in enumerate(self.workers):
            if (role, index) == (self.role, self.index):
                return number
        raise ValueError(
            f"TF_CONFIG says that this process is {self.role} {self.index}, and its cluster has "
            f"{', '.join(f'{len(a)} {role}' for role, a in self.addresses.items()) or 'no task'}: "
            "a task that trains is one of its chief and workers."
        )

    @property
    def has_parameter_servers(self) -> bool:
        """Whether variables are on parameter servers."""
        return bool(self.addresses.get("ps"))

    @property
    def is_served(self) -> bool:
        """Whether this process is a worker or parameter server that a chief controls."""
        return self.has_parameter_servers and self.role != "chief"

    def tf_config(self) -> str:
        """Return the value of TF_CONFIG for this task."""
        tasks = {role: list(found) for role, found in self.addresses.items()}
        return json.dumps({"cluster": tasks, "task": {"type": self.role, "index": self.index}})


def cluster_of_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Return the cluster of TF_CONFIG, or None if it names no task: one process trains alone.

    Raises:
        ValueError: TF_CONFIG is not JSON with a cluster and a task, has an unknown role, has the
            same address twice, or has a task that the cluster does not have.
    """
    text = environment.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        tasks = config.get("cluster") or {}
        if not tasks:
            return None
        addresses = {role: tuple(_addresses(found)) for role, found in tasks.items()}
        task = config["task"]
        cluster = Cluster(addresses, str(task["type"]), _task_index(task["index"]))
        _check_tasks(cluster)
        return cluster
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = error if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(
            f"TF_CONFIG={text!r} is not a cluster and a task ({what}): "
            'give {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", '
            '"index": 0}}, or unset it to train in one process.'
        ) from None


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, without the brackets of an IPv6 address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _addresses(found: Json) -> Sequence[str]:
    if isinstance(found, Mapping):  # TensorFlow allows index -> address, with gaps
        found = [found[key] for key in sorted(found, key=int)]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{found!r} is not a list of addresses")
    return found


def _task_index(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"task.index={value!r} is not a whole number")
    return int(value)


def _check_tasks(cluster: Cluster) -> None:
    """Raise ValueError for a cluster whose tasks would wait for each other forever."""
    for role in cluster.addresses:
        if role not in (*_ROLES, "evaluator"):
            raise ValueError(f"cluster.{role} is not a role: {nearest(role, _ROLES)}")
    if len(cluster.addresses.get("chief", ())) > 1:
        raise ValueError("cluster.chief has several addresses: use one")
    for address, times in Counter(itertools.chain(*cluster.addresses.values())).items():
        if times > 1:
            raise ValueError(f"address {address!r} is there {times} times: give each task its own")
        _, _, port = address.rpartition(":")
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ValueError(f"address {address!r} is not host:port with a port from 1 to 65535")
    there = cluster.addresses.get(cluster.role)
    if there is None and cluster.role != "evaluator":
        raise ValueError(
            f"task.type={cluster.role!r} is not in the cluster: "
            f"{nearest(cluster.role, cluster.addresses)}"
        )
    if there is not None and not 0 <= cluster.index < len(there):
        raise ValueError(
            f"task.index={cluster.index}, and cluster.{cluster.role} has {len(there)}: use a "
            f"number from 0 to {len(there) - 1}"
        )
