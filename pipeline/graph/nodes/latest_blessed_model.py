"""LatestBlessedModel: the model that the Evaluator compares a new one with."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    if context.blessed_models is not None:
        from components import LatestBlessedModel

        return LatestBlessedModel(context.blessed_models, model_uri=context.baseline_model)
    from tfx.dsl.components.common.resolver import Resolver
    from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
    from tfx.types import standard_artifacts
    from tfx.types.channel import Channel

    return Resolver(
        strategy_class=latest_blessed_model_strategy.LatestBlessedModelStrategy,
        model=Channel(type=standard_artifacts.Model),
        model_blessing=Channel(type=standard_artifacts.ModelBlessing),
    )


NODE = NodeSpec(
    name=NodeName.LATEST_BLESSED_MODEL,
    build=_build,
    main_outputs=("model",),
    reads_outside=True,
)
