"""Names for the parts of a pipelineSpec (schema 2.1.0) and of an ExecutorInput, as JSON values."""

from __future__ import annotations

from typing import TypeAlias

from pipeline.common.json_values import JsonMapping, JsonObject

PipelineSpec: TypeAlias = JsonObject
Component: TypeAlias = JsonMapping
Container: TypeAlias = JsonObject
Executor: TypeAlias = JsonMapping
Task: TypeAlias = JsonObject
ExecutorInput: TypeAlias = JsonMapping
Artifact: TypeAlias = JsonObject
Manifest: TypeAlias = JsonObject  # of a TFJob
PodSpec: TypeAlias = JsonObject  # a PodTemplateSpec or a KubernetesExecutorConfig
