"""Names for the parts of a pipelineSpec (schema 2.1.0) and of an ExecutorInput, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pipeline.common.json_types import JsonObject, JsonValue

PipelineSpec: TypeAlias = JsonObject
JsonMapping: TypeAlias = Mapping[str, JsonValue]  # only read
Component: TypeAlias = JsonMapping
Container: TypeAlias = JsonObject
Executor: TypeAlias = JsonMapping
Task: TypeAlias = JsonObject
ExecutorInput: TypeAlias = JsonMapping
Artifact: TypeAlias = JsonObject
Manifest: TypeAlias = JsonObject  # of a TFJob
PodSpec: TypeAlias = JsonObject  # a PodTemplateSpec or a KubernetesExecutorConfig
