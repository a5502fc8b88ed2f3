"""SchemaGen: infers the schema of the raw data where none is given."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from tfx.components import SchemaGen

    # Without inferred shapes every column may be missing in a row, at serving as in training.
    return SchemaGen(
        statistics=context.output(NodeName.STATISTICS_GEN, "statistics"), infer_feature_shape=False
    )


NODE = NodeSpec(
    name=NodeName.SCHEMA_GEN,
    build=_build,
    after=(NodeName.STATISTICS_GEN,),
    section="schema",
    is_used=lambda context: not context.config.data_schema.path,
    main_outputs=("schema",),
)
