"""Build the graph for any target: the nodes of the table, then those of the YAML's `nodes:`.

ExampleGen -> StatisticsGen -> SchemaGen | ImportSchemaGen -> ExampleValidator
  -> Transform -> NormalizationValidator -> [Tuner] -> Trainer -> Resolver -> Evaluator
  -> [InputGradients], Pusher
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.config.config import PipelineConfig, is_remote
from pipeline.graph.nodes import NODES, GraphContext
from pipeline.graph.user_nodes import add_user_nodes

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline


def create_pipeline(
    config: PipelineConfig,
    *,
    blessed_models: str | None = None,
) -> Pipeline:
    """Return the pipeline that a configuration of `load_config` describes, for any TFX runner.

    Building it reads no data. It writes nothing except, for a local run, the metadata's folder.

    Args:
        config: The checked configuration with absolute paths.
        blessed_models: Folder of the records of blessed models, for a target without a resolver;
            None: use TFX's resolver.
    """
    from tfx.orchestration import metadata
    from tfx.orchestration.pipeline import Pipeline

    context = GraphContext(config, blessed_models)
    for name, spec in NODES.items():
        if spec.is_used(context):
            node = spec.build(context).with_id(str(name))  # TFX writes the type of a text, too
            ids = {n for each in node.inputs.values() for n in each.get_data_dependent_node_ids()}
            node.add_upstream_nodes([context.nodes[n] for n in (*sorted(ids), *spec.after)])
            context.nodes[str(name)] = node
    add_user_nodes(context)
    # This creates the folder; for a remote place that would be a local folder named `gs:`.
    sqlite = None if is_remote(config.output.folder) else metadata.sqlite_metadata_connection_config
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=config.pipeline_root,
        components=list(context.nodes.values()),
        enable_cache=config.metadata.cache,
        metadata_connection_config=sqlite and sqlite(str(config.metadata_path)),
        beam_pipeline_args=config.beam.pipeline_args(),
    )
