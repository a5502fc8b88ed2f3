"""StatisticsGen: statistics of the raw columns."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from tfx.components import StatisticsGen

    return StatisticsGen(examples=context.output(NodeName.EXAMPLE_GEN, "examples"))


NODE = NodeSpec(
    name=NodeName.STATISTICS_GEN,
    build=_build,
    after=(NodeName.EXAMPLE_GEN,),
    main_outputs=("statistics",),
    rows="all",
)
