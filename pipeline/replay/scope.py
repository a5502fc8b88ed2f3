"""The values that tasks of one graph exchange with each other and with the enclosing graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.targets.spec_types import Component, JsonMapping, Task

State = Literal["SUCCEEDED", "FAILED", "SKIPPED"]


class Values(NamedTuple):
    """Artifacts and parameters by key: the inputs or outputs of a task or a graph.

    An artifact's value is ExecutorInput's `{"artifacts": [...]}`.
    """

    artifacts: JsonObject
    parameters: JsonObject


@dataclass(frozen=True)
class Scope:
    """The state of one graph while it runs.

    Attributes:
        hand_over: Returns an artifact as the platform passes it to the next task.
        given: Inputs of the graph.
        made: Task that succeeded -> its outputs.
        states: Task -> how it ended.
        errors: Task that failed -> reason.
    """

    hand_over: Callable[[JsonObject], JsonObject]
    given: Values
    made: dict[str, Values] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def inputs(self, task: Task, component: Component) -> Values:
        """Return the inputs of a task.

        Outputs of failed and skipped tasks are omitted, so an exit handler gets the existing ones.
        """
        wanted, artifacts, parameters = task.get("inputs", {}), {}, {}
        for key, source in wanted.get("artifacts", {}).items():
            if "componentInputArtifact" in source:
                found = self.given.artifacts.get(source["componentInputArtifact"])
            else:
                place = source["taskOutputArtifact"]
                made = self.made.get(place["producerTask"])
                found = made.artifacts[place["outputArtifactKey"]] if made else None
            if found is not None:
                handed = [self.hand_over(a) for a in found["artifacts"]]
                artifacts[key] = {"artifacts": handed}
        declared = component.get("inputDefinitions", {}).get("parameters", {})
        for key, source in wanted.get("parameters", {}).items():
            as_struct = declared.get(key, {}).get("parameterType") == "TASK_FINAL_STATUS"
            found = self._parameter(source, as_struct=as_struct)
            if found is not None:
                parameters[key] = found
        for key, each in declared.items():
            if "defaultValue" in each:
                parameters.setdefault(key, each["defaultValue"])
        return Values(artifacts, parameters)

    def outputs(self, dag: JsonMapping) -> Values:
        """Return the outputs of the graph: those of its tasks that ran."""
        wanted, artifacts, parameters = dag.get("outputs", {}), {}, {}
        for key, each in wanted.get("artifacts", {}).items():
            for selector in each.get("artifactSelectors", []):
                if made := self.made.get(selector["producerSubtask"]):
                    artifacts[key] = made.artifacts[selector["outputArtifactKey"]]
        for key, each in wanted.get("parameters", {}).items():
            one_of = each.get("valueFromOneof", {}).get("parameterSelectors", [])
            for selector in [*one_of, *filter(None, [each.get("valueFromParameter")])]:
                if made := self.made.get(selector["producerSubtask"]):
                    parameters[key] = made.parameters.get(selector["outputParameterKey"])
        return Values(artifacts, parameters)

    def _parameter(self, source: JsonMapping, *, as_struct: bool) -> JsonValue:
        if "runtimeValue" in source:
            return source["runtimeValue"]["constant"]
        if "componentInputParameter" in source:
            return self.given.parameters.get(source["componentInputParameter"])
        if "taskOutputParameter" in source:
            place = source["taskOutputParameter"]
            made = self.made.get(place["producerTask"])
            return made.parameters.get(place["outputParameterKey"]) if made else None
        if "taskFinalStatus" in source:
            status = self._final_status(source["taskFinalStatus"]["producerTask"])
            return status if as_struct else json.dumps(status)
        return None

    def _final_status(self, name: str) -> JsonObject:
        """Return PipelineTaskFinalStatus, an input of exit handlers, as JSON."""
        error = self.errors.get(name)
        return {
            "state": self.states.get(name) or ("FAILED" if self.errors else "SUCCEEDED"),
            "error": {"code": 9, "message": error} if error else {},
            "pipelineTaskName": name,
        }
