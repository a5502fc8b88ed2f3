"""BlessedModelRecord: records a blessed model, for a target without a resolver."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from components import BlessedModelRecord

    assert context.blessed_models is not None
    return BlessedModelRecord(
        context.output(NodeName.TRAINER, "model"),
        context.output(NodeName.EVALUATOR, "blessing"),
        folder=context.blessed_models,
    )


NODE = NodeSpec(
    name=NodeName.BLESSED_MODEL_RECORD,
    build=_build,
    after=(NodeName.TRAINER, NodeName.EVALUATOR),
    is_used=lambda context: context.blessed_models is not None,
    reads_outside=True,
)
