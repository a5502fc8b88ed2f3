"""ImportSchemaGen: reads a reviewed schema of the raw data."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen

    assert context.config.data_schema.path is not None
    return ImportSchemaGen(schema_file=context.config.data_schema.path)


NODE = NodeSpec(
    name=NodeName.IMPORT_SCHEMA_GEN,
    build=_build,
    section="schema",
    is_used=lambda context: bool(context.config.data_schema.path),
    main_outputs=("schema",),
)
