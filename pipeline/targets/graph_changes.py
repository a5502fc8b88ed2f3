"""Compare compiled graphs: do two configurations differ only in settings of nodes?"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.cluster import TargetConfig
from pipeline.config.config import PipelineConfig
from pipeline.targets.spec_types import JsonMapping

# The machines in a compiled pipeline are not settings of nodes, and equal in all builds.
_ANY_TARGET = TargetConfig(image="any:1", pipeline_root="any")


class StructureChanged(Exception):
    """Two graphs differ in more than the settings of their nodes; the message names the place."""


def build_job(config: PipelineConfig, graph: Mapping[str, str | None]) -> JsonObject:
    """Return the compiled graph of a configuration at its target, for any machines."""
    from pipeline.graph.build import create_pipeline
    from pipeline.targets.spec import job_of

    return job_of(create_pipeline(config, **graph), _ANY_TARGET)


def changed_properties(before: JsonMapping, after: JsonMapping) -> dict[str, JsonObject]:
    """Return node -> execution properties that differ, with their values in `after`.

    Raises:
        StructureChanged: The graphs differ in something else.
    """
    (old, old_rest), (new, new_rest) = _split_properties(before), _split_properties(after)
    if place := _first_difference(old_rest, new_rest):
        raise StructureChanged(place)
    changed = {
        node: {key: value for key, value in properties.items() if value != old[node][key]}
        for node, properties in new.items()
    }
    return {node: properties for node, properties in changed.items() if properties}


def _split_properties(job: JsonMapping) -> tuple[dict[str, JsonObject], JsonObject]:
    """Return node -> constant execution properties, and the job without their values."""
    rest = copy.deepcopy(dict(job))
    properties: dict[str, JsonObject] = {}
    for node, task in rest["pipelineSpec"]["root"]["dag"]["tasks"].items():
        properties[node] = {
            key: source["runtimeValue"].pop("constant")
            for key, source in task.get("inputs", {}).get("parameters", {}).items()
            if "constant" in source.get("runtimeValue", {})
        }
    return properties, rest


def _first_difference(
    old: JsonValue, new: JsonValue, place: str = "the compiled pipeline"
) -> str | None:
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        found = (_first_difference(old[key], new[key], f"{place}.{key}") for key in sorted(old))
        return next((each for each in found if each), None)
    return None if old == new else place
