"""Check that a compiled pipeline is small enough to start: arguments of Linux, objects of etcd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.targets.argument_length import LONGEST_ARGUMENT, as_size
from pipeline.targets.placeholders import as_json
from pipeline.targets.spec_types import PipelineSpec

_LARGEST_WORKFLOW = 1_500_000
# The whole ExecutorInput is one argument: besides the properties it has the artifacts' places.
_OF_ARTIFACTS = 8 * 1024
_FIX = (
    "name fewer columns one by one (a group can select them by a pattern such as price_*), or give "
    "them shorter names."
)


def find_oversized(spec: PipelineSpec, target: str) -> list[str]:
    """Return the parts of a pipelineSpec that are too large, one sentence each."""
    found = [*_properties(spec)]
    if target == "kubeflow":
        found += [*_arguments_of_driver(spec), *_workflow(spec)]
    return found


def _tasks(spec: PipelineSpec) -> Iterator[tuple[str, Any]]:
    for component in (spec["root"], *spec["components"].values()):
        yield from component.get("dag", {}).get("tasks", {}).items()


def _properties(spec: PipelineSpec) -> Iterator[str]:
    for name, task in _tasks(spec):
        values = {
            key: source["runtimeValue"].get("constant")
            for key, source in task.get("inputs", {}).get("parameters", {}).items()
            if "runtimeValue" in source
        }
        size = len(as_json(values).encode())
        if size + _OF_ARTIFACTS >= LONGEST_ARGUMENT:
            longest = max(values, key=lambda key: len(as_json(values[key])))
            yield (
                f"{name}: its settings have {as_size(size)} as they travel (compressed), most of "
                f"it in {longest}, and its container gets them in one argument, of less than "
                f"{as_size(LONGEST_ARGUMENT - _OF_ARTIFACTS)}; {_FIX}"
            )


def _arguments_of_driver(spec: PipelineSpec) -> Iterator[str]:
    parts = {
        "task": dict(_tasks(spec)),
        # A graph's component has all of its tasks: the driver of the graph gets all of it.
        "component": {"root": spec["root"], **spec["components"]},
        "container": spec["deploymentSpec"]["executors"],
    }
    for kind, each in parts.items():
        for name, part in each.items():
            size = len(as_json(part).encode())
            if size >= LONGEST_ARGUMENT:
                yield (
                    f"{name}: its {kind} has {as_size(size)} as JSON, which Kubeflow's driver "
                    f"takes as one argument, of less than {as_size(LONGEST_ARGUMENT)}; {_FIX}"
                )


def _workflow(spec: PipelineSpec) -> Iterator[str]:
    size = len(as_json(spec).encode())
    if size > _LARGEST_WORKFLOW:
        yield (
            f"the compiled pipeline has {as_size(size)}, and Kubeflow stores a run as one object "
            f"of etcd, of {as_size(_LARGEST_WORKFLOW)} at most: use fewer nodes or groups."
        )
