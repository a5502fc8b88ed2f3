"""InputGradients: attributes the model's predictions to columns."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from components import InputGradients

    config = context.config
    assert config.explain is not None
    return InputGradients(
        examples=context.output(NodeName.EXAMPLE_GEN, "examples"),
        model=context.output(NodeName.TRAINER, "model"),
        rows=config.explain.rows,
        steps=config.explain.steps,
        split=config.data.evaluation_split,
    )


NODE = NodeSpec(
    name=NodeName.INPUT_GRADIENTS,
    build=_build,
    after=(NodeName.EXAMPLE_GEN, NodeName.TRAINER, NodeName.EVALUATOR),
    section="explain",
    is_used=lambda context: context.config.explain is not None,
    main_outputs=("attributions",),
)
