"""The processes of a job as TF_CONFIG names them; no TensorFlow is needed to read it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["chief", "worker", "ps"]
# Of a process that ends because another one was lost. EX_TEMPFAIL of sysexits.h: nothing is wrong
# with it, and a start anew may end well.
EXIT_WORKER_LOST = 75

ROLES: tuple[Role, ...] = ("chief", "worker", "ps")


@dataclass(frozen=True)
class Cluster:
    """Who takes part, and which of them this process is.

    Attributes:
        addresses: Role to the `host:port` of each of its tasks.
        role: This process' own.
        index: Its number among those of its role.
    """

    addresses: Mapping[str, tuple[str, ...]]
    role: str
    index: int

    @property
    def workers(self) -> tuple[tuple[str, int, str], ...]:
        """(role, index, address) of all that train together: a chief, if any, before workers."""
        return tuple(
            (role, index, address)
            for role in ("chief", "worker")
            for index, address in enumerate(self.addresses.get(role, ()))
        )

    @property
    def number(self) -> int:
        """This process' place in `workers`; replicas are numbered in that order.

        Raises:
            ValueError: It is none of them.
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
        """Whether variables are to be on servers of their own."""
        return bool(self.addresses.get("ps"))

    def tf_config(self) -> str:
        """Returns the value of TF_CONFIG that says all this."""
        tasks = {role: list(found) for role, found in self.addresses.items()}
        return json.dumps({"cluster": tasks, "task": {"type": self.role, "index": self.index}})


def cluster_of_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Returns what TF_CONFIG says, or None where it names no task: one process trains alone.

    Raises:
        ValueError: TF_CONFIG is no JSON of a cluster and a task.
    """
    text = environment.get("TF_CONFIG") or "{}"
    try:
        said = json.loads(text)
        tasks = said.get("cluster") or {}
        if not tasks:
            return None
        addresses = {role: tuple(map(str, _list(found))) for role, found in tasks.items()}
        task = said["task"]
        return Cluster(addresses, str(task["type"]), int(task["index"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"TF_CONFIG={text!r} is not a cluster and a task ({type(error).__name__}: {error}): "
            'give {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", '
            '"index": 0}}, or unset it to train in one process.'
        ) from None


def _list(found: Any) -> Sequence[Any]:
    if isinstance(found, Mapping):  # TensorFlow allows index -> address, with gaps
        return [found[key] for key in sorted(found, key=int)]
    return found
