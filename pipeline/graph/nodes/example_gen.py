"""ArrowExampleGen: reads the rows and splits them."""

from __future__ import annotations

from pipeline.data import data_sources
from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    return data_sources.example_gen(context.config.data, context.config.features)


NODE = NodeSpec(
    name=NodeName.EXAMPLE_GEN,
    build=_build,
    section="data",
    rows="all",
    reads_outside=True,  # files of a path may change
)
