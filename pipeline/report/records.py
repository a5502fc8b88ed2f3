"""The latest run in the metadata store: its nodes and their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName

if TYPE_CHECKING:
    from ml_metadata import MetadataStore
    from ml_metadata.proto import metadata_store_pb2 as mlmd

PUSHED_DESTINATION = "pushed_destination"
"""Property of the Pusher's artifact: where the model is."""


@dataclass(frozen=True)
class OutputArtifact:
    """An artifact that a node wrote or reused."""

    uri: str
    properties: JsonObject


Nodes: TypeAlias = Mapping[str, Mapping[str, OutputArtifact]]
"""Finished node of a run -> output key -> its latest artifact."""


def find_output(nodes: Nodes, node: NodeName, key: str) -> OutputArtifact | None:
    """Return the latest artifact of a node's output, or None."""
    return nodes.get(node, {}).get(key)


def open_store(metadata: Path, *, writable: bool) -> MetadataStore:
    """Return the metadata store in a SQLite file."""
    from ml_metadata import MetadataStore
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    connection = mlmd.ConnectionConfig()
    connection.sqlite.filename_uri = str(metadata)
    if not writable:
        connection.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READONLY
    return MetadataStore(connection)


def latest_run(metadata_path: Path, pipeline: str | None = None) -> Nodes:
    """Return the finished nodes of a pipeline's latest run by name; empty if it never ran.

    Without a name: the latest run of any pipeline.
    """
    store, run = _latest(metadata_path, pipeline)
    if store is None or run is None:
        return {}
    return _nodes_of(store, run)


def run_by_id(config: PipelineConfig, run_id: str) -> Nodes:
    """Return the finished nodes of a run by name; empty if ML Metadata does not know the run."""
    if not config.metadata_path.exists():
        return {}
    store = open_store(config.metadata_path, writable=False)
    run = store.get_context_by_type_and_name("pipeline_run", run_id)
    if run is None:
        return {}
    return _nodes_of(store, run)


def _nodes_of(store: MetadataStore, run: mlmd.Context) -> Nodes:
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    pipeline = _pipeline_name(store, run)
    nodes: dict[str, dict[str, OutputArtifact]] = {}
    finished = {mlmd.Execution.COMPLETE, mlmd.Execution.CACHED}
    for execution in store.get_executions_by_context(run.id):
        if execution.last_known_state not in finished:
            continue
        name = _node_name(store, execution.id, pipeline)
        outputs = nodes[name] = {}
        events = store.get_events_by_execution_ids([execution.id])
        written = [e for e in events if e.type == mlmd.Event.OUTPUT]
        by_id = {a.id: a for a in store.get_artifacts_by_id([e.artifact_id for e in written])}
        for event in sorted(written, key=lambda e: e.artifact_id):
            artifact = by_id[event.artifact_id]
            values = [*artifact.properties.items(), *artifact.custom_properties.items()]
            properties = {key: _value(value) for key, value in values}
            outputs[event.path.steps[0].key] = OutputArtifact(artifact.uri, properties)
    return nodes


def latest_run_id(config: PipelineConfig) -> str:
    """Return ML Metadata's name of a configuration's latest run; "" if it never ran."""
    _, run = _latest(config.metadata_path, config.name)
    return "" if run is None else run.name


def _latest(
    metadata_path: Path, pipeline: str | None
) -> tuple[MetadataStore | None, mlmd.Context | None]:
    """Return the store and its latest run; (None, None) if there is none."""
    if not metadata_path.exists():
        return None, None
    store = open_store(metadata_path, writable=False)
    runs = [
        run
        for run in store.get_contexts_by_type("pipeline_run")
        if pipeline in (None, _pipeline_name(store, run))
    ]
    return (store, max(runs, key=lambda context: context.id)) if runs else (None, None)


def latest_run_of(config: PipelineConfig) -> Nodes:
    """Return the finished nodes of a configuration's latest run, by name."""
    return latest_run(config.metadata_path, config.name)


def _pipeline_name(store: MetadataStore, run: mlmd.Context) -> str:
    parents = store.get_parent_contexts_by_context(run.id)
    return parents[0].name if parents else run.properties["pipeline_id"].string_value


def _node_name(store: MetadataStore, execution: int, pipeline: str) -> str:
    for context in store.get_contexts_by_execution(execution):
        if context.type == "node":
            return context.name.removeprefix(f"{pipeline}.")
    raise LookupError(f"execution {execution} of {pipeline} belongs to no node")


def _value(value: mlmd.Value) -> JsonValue:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None
