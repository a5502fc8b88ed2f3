"""ExampleValidator: compares the statistics with the schema."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from tfx.components import ExampleValidator

    return ExampleValidator(
        statistics=context.output(NodeName.STATISTICS_GEN, "statistics"), schema=context.schema()
    )


NODE = NodeSpec(
    name=NodeName.EXAMPLE_VALIDATOR,
    build=_build,
    after=(NodeName.STATISTICS_GEN, NodeName.SCHEMA_GEN, NodeName.IMPORT_SCHEMA_GEN),
    main_outputs=("anomalies",),
)
