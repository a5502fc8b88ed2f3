"""Read a compiled pipeline, and order its tasks by their dependencies."""

from __future__ import annotations

import dataclasses
import graphlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from pipeline.common.errors import ConfigError, first_line
from pipeline.common.json_types import JsonObject
from pipeline.common.nearest_file import did_you_mean
from pipeline.targets.long_values import change_texts

_NAME = re.compile(r"^\w([\w. -]*\w)?$")


@dataclass(frozen=True)
class CompiledSpec:
    """A file that `compile` wrote."""

    target: Literal["kubeflow", "vertex"]  # a PipelineJob is for Vertex
    spec: JsonObject
    root: str  # "" if the file names none
    parameters: JsonObject  # values
    platform: JsonObject  # the Kubernetes settings in the second document, by executor

    @classmethod
    def read(cls, path: Path) -> CompiledSpec:
        """Read a file; a ConfigError if it cannot be read, or is not a compiled pipeline."""
        try:
            documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(
                f"--spec {path}: cannot read it ({first_line(error)}). "
                + ("" if path.exists() else did_you_mean(path))
                + "Name a file that `python -m pipeline compile` wrote."
            ) from None
        job, second = (*(d if isinstance(d, dict) else {} for d in documents), {}, {})[:2]
        spec = job.get("pipelineSpec", job)
        if "root" not in spec or "deploymentSpec" not in spec:
            raise ConfigError(
                f"--spec {path}: not a compiled pipeline, because it has no root and no "
                "deploymentSpec. Name a file that `python -m pipeline compile` wrote."
            )
        for name in _names(spec):
            if not _NAME.match(name):
                raise ConfigError(
                    f"--spec {path}: {name!r} is not a valid name of a pipeline, a task or an "
                    "output. Use letters, digits, and - _ . between them."
                )
        runtime = job.get("runtimeConfig", {})
        kubernetes = second.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {})
        return cls(
            "vertex" if "pipelineSpec" in job else "kubeflow",
            spec,
            runtime.get("gcsOutputDirectory") or spec.get("defaultPipelineRoot", ""),
            runtime.get("parameterValues", {}),
            kubernetes.get("executors", {}),
        )

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.spec["pipelineInfo"]["name"]

    def executor(self, component: JsonObject) -> JsonObject:
        """Return the executor of a component."""
        return self.spec["deploymentSpec"]["executors"][component["executorLabel"]]

    def timeout(self, component: JsonObject) -> float | None:
        """Return the target's time limit for a component in seconds; None: no limit."""
        label = component["executorLabel"]
        if seconds := self.platform.get(label, {}).get("activeDeadlineSeconds"):
            return float(seconds)
        job = self.executor(component).get("customJob", {}).get("customJob", {}).get("jobSpec", {})
        seconds = job.get("scheduling", {}).get("timeout")
        return float(seconds.removesuffix("s")) if seconds else None

    def cluster_variables(self, component: JsonObject) -> list[str]:
        """Return the variables of a component's pod that come from secrets and pod fields."""
        pod = self.platform.get(component["executorLabel"], {})
        keys = [key for secret in pod.get("secretAsEnv", []) for key in secret.get("keyToEnv", [])]
        fields = pod.get("fieldPathAsEnv", [])
        return [*(key["envVar"] for key in keys), *(field["name"] for field in fields)]

    def renamed(self, prefixes: Mapping[str, str]) -> CompiledSpec:
        """Return the pipeline with path prefixes (old -> new) replaced in all values."""
        spec, parameters = change_texts(
            [self.spec, self.parameters], lambda text: rename_text(text, prefixes)
        )
        return dataclasses.replace(self, spec=spec, parameters=parameters)


def rename_text(text: str, prefixes: Mapping[str, str]) -> str:
    """Return the text with each path prefix replaced, longest first."""
    for old, new in sorted(prefixes.items(), key=lambda pair: -len(pair[0])):
        text = _place_pattern(old).sub(lambda _, new=new: new, text)
    return text


def _names(spec: JsonObject) -> Iterator[str]:
    """Yield the names that become parts of paths."""
    yield spec["pipelineInfo"]["name"]
    for component in (spec["root"], *spec.get("components", {}).values()):
        yield from component.get("dag", {}).get("tasks", {})
        for outputs in component.get("outputDefinitions", {}).values():
            yield from outputs


def _place_pattern(place: str) -> re.Pattern[str]:
    """`s3://bucket/data` is in `s3://bucket/data/x.csv` and not in `s3://bucket/data2`."""
    return re.compile(rf"{re.escape(place)}(?![\w.-])")


def names_place(text: str, place: str) -> bool:
    """Return whether a text names a folder or a path below it."""
    return bool(_place_pattern(place).search(text))


def in_order(tasks: JsonObject) -> list[str]:
    """Return the names of the tasks, each after the tasks that it depends on."""
    # Sorted, because sets of strings, and so the tasks, have a different order in each process.
    needs = {name: sorted(_needed(task)) for name, task in tasks.items()}
    return list(graphlib.TopologicalSorter(needs).static_order())


def _needed(task: JsonObject) -> set[str]:
    inputs = task.get("inputs", {})
    sources = [*inputs.get("artifacts", {}).values(), *inputs.get("parameters", {}).values()]
    kinds = ("taskOutputArtifact", "taskOutputParameter")
    producers = {s[kind]["producerTask"] for s in sources for kind in kinds if kind in s}
    return {*task.get("dependentTasks", []), *producers}
