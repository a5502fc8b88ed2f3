"""NormalizationValidator: checks the transformed features before anything is trained on them."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from components import NormalizationLimits, NormalizationValidator

    settings = context.config.normalization
    return NormalizationValidator(
        examples=context.output(NodeName.TRANSFORM, "transformed_examples"),
        transform_graph=context.output(NodeName.TRANSFORM, "transform_graph"),
        statistics=context.output(NodeName.STATISTICS_GEN, "statistics"),
        limits=NormalizationLimits.of(settings),
        on_failure=settings.on_failure,
    )


NODE = NodeSpec(
    name=NodeName.NORMALIZATION_VALIDATOR,
    build=_build,
    after=(NodeName.STATISTICS_GEN, NodeName.TRANSFORM),
    section="normalization",
    main_outputs=("report",),
)
