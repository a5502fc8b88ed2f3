"""Pusher: copies a blessed model to where it is served from."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from tfx.components import Pusher
    from tfx.proto.pusher_pb2 import PushDestination  # pyright: ignore[reportAttributeAccessIssue]

    return Pusher(
        model=context.output(NodeName.TRAINER, "model"),
        model_blessing=context.output(NodeName.EVALUATOR, "blessing"),
        push_destination=PushDestination(
            filesystem=PushDestination.Filesystem(base_directory=context.config.push_folder)
        ),
    )


NODE = NodeSpec(
    name=NodeName.PUSHER,
    build=_build,
    after=(NodeName.TRAINER, NodeName.EVALUATOR),
    section="serving",
)
