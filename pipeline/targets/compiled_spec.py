"""A compiled pipeline read back: its tasks in the order in which they may run."""

from __future__ import annotations

import graphlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from pipeline.common.errors import ConfigError


@dataclass(frozen=True)
class CompiledSpec:
    """A file that `compile` wrote.

    Attributes:
        target: whose it is: a PipelineJob is Vertex', a pipelineSpec alone Kubeflow's.
        spec: the pipelineSpec.
        root: the pipeline root that it names; "" for none.
        parameters: values of the job's own parameters.
    """

    target: Literal["kubeflow", "vertex"]
    spec: dict[str, Any]
    root: str
    parameters: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> CompiledSpec:
        """Reads a file.

        Raises:
            ConfigError: it cannot be read, or is no compiled pipeline.
        """
        try:
            first = next(iter(yaml.safe_load_all(path.read_text(encoding="utf-8"))), None)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(
                f"--spec {path}: cannot read it ({str(error).splitlines()[0]}). Name a file that "
                "`python -m pipeline compile` wrote."
            ) from None
        job = first if isinstance(first, dict) else {}
        spec = job.get("pipelineSpec", job)
        if "root" not in spec or "deploymentSpec" not in spec:
            raise ConfigError(
                f"--spec {path}: no compiled pipeline: it has no root and deploymentSpec. Name a "
                "file that `python -m pipeline compile` wrote."
            )
        runtime = job.get("runtimeConfig", {})
        return cls(
            "vertex" if "pipelineSpec" in job else "kubeflow",
            spec,
            runtime.get("gcsOutputDirectory") or spec.get("defaultPipelineRoot", ""),
            runtime.get("parameterValues", {}),
        )

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.spec["pipelineInfo"]["name"]

    def executor(self, component: Mapping[str, Any]) -> dict[str, Any]:
        """Returns how a component is executed."""
        return self.spec["deploymentSpec"]["executors"][component["executorLabel"]]

    def renamed(self, prefixes: Mapping[str, str]) -> CompiledSpec:
        """Returns it with each prefix of a path replaced, in whatever names one."""
        text = json.dumps(self.spec)
        for old, new in sorted(prefixes.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(old, new)
        return CompiledSpec(self.target, json.loads(text), self.root, self.parameters)


def in_order(tasks: Mapping[str, Any]) -> list[str]:
    """Returns the tasks' names, each after those that it depends on."""
    needs: dict[str, set[str]] = {}
    for name, task in tasks.items():
        inputs = task.get("inputs", {})
        sources = [*inputs.get("artifacts", {}).values(), *inputs.get("parameters", {}).values()]
        producers = {
            source[key]["producerTask"]
            for source in sources
            for key in ("taskOutputArtifact", "taskOutputParameter")
            if key in source
        }
        needs[name] = {*task.get("dependentTasks", []), *producers}
        if task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED":
            needs[name] |= set(tasks) - {name}
    unknown = {need for each in needs.values() for need in each} - set(tasks)
    if unknown:
        raise ConfigError(
            f"the compiled pipeline has a task that waits for {', '.join(sorted(unknown))}, which "
            f"is none of its tasks ({', '.join(tasks)}): compile it again."
        )
    return list(graphlib.TopologicalSorter(needs).static_order())
