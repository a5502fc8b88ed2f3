"""The rules that Kubeflow applies to a node, each with its source.

A replay of a file compiled for Kubeflow follows these rules, so that it fails where the platform
fails. Paths are in the repository kubeflow/pipelines; versions are those of its backend.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """One rule.

    Attributes:
        what: What Kubeflow does.
        source: File of kubeflow/pipelines, or the project that does it.
        versions: Versions of Kubeflow Pipelines that do it.
    """

    what: str
    source: str
    versions: str

    def __str__(self) -> str:
        """Return the source of the rule, for an error message."""
        return f"Kubeflow {self.versions}, {self.source}"


_DRIVER = "backend/src/v2/driver/driver.go"
_LAUNCHER = "backend/src/v2/component/launcher_v2.go"
_OBJECTS = "backend/src/v2/objectstore/object_store.go"

EXECUTOR_LOGS = Rule(
    "Adds an output artifact `executor-logs` of type `system.Artifact` that no component declares "
    "(`PUBLISH_LOGS`, which is on by default)",
    _DRIVER,
    "2.5 and newer",
)
DROPPED_TYPES = Rule(
    "Hands artifacts over with an empty type, and a number in place of a name",
    "backend/src/v2/metadata/client.go",
    "all",
)
DOWNLOAD = Rule(
    "Downloads every input artifact to the pod's disk before the command starts; an object whose "
    "name ends in `/` becomes a file, and what is below it cannot be written",
    _LAUNCHER,
    "all",
)
PREFIX = Rule(
    "Downloads every object whose name begins with the artifact's URI: with `model` also "
    "`model_run`",
    _OBJECTS,
    "up to 2.16.1",
)
UPLOAD = Rule(
    "Uploads what the command wrote to an output's local path, after it ended with code 0",
    _LAUNCHER,
    "all",
)
OUTPUT_PARAMETERS = Rule(
    "Fails a node that did not write a declared output parameter", _LAUNCHER, "all"
)
NUMBERS = Rule("Writes the number 2 as `2`, not as `2.0`", _LAUNCHER, "all")
VARIABLES = Rule(
    "Replaces `$(NAME)` in an argument by the variable of that name in the pod's spec, and `$$` "
    "by `$`",
    "Kubernetes (the kubelet)",
    "all",
)
STRUCTURED = Rule(
    "Takes KFP's Concat in an argument as plain text, and IfPresent up to 2.16.1",
    _LAUNCHER,
    "2.5 and newer",
)
ARGUMENT_LENGTH = Rule(
    "Starts no process with an argument of 128 KiB or more (Linux); the ExecutorInput, the task, "
    "the component and the container each are one argument of the driver or the launcher",
    _DRIVER,
    "all",
)
WORKFLOW_SIZE = Rule(
    "Stores the workflow as one object, which etcd limits to 1.5 MiB",
    "backend/src/v2/compiler/argocompiler/argo.go",
    "all",
)
ENVIRONMENT = Rule(
    "Gives a container the image's variables, those of the spec and the pod's own, and nothing of "
    "the machine that compiled it",
    "backend/src/v2/compiler/argocompiler/container.go",
    "all",
)

RULES = (
    EXECUTOR_LOGS,
    DROPPED_TYPES,
    DOWNLOAD,
    PREFIX,
    UPLOAD,
    OUTPUT_PARAMETERS,
    NUMBERS,
    VARIABLES,
    STRUCTURED,
    ARGUMENT_LENGTH,
    WORKFLOW_SIZE,
    ENVIRONMENT,
)
