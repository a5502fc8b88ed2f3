"""Evaluator: metrics of the model, against thresholds and the latest blessed model."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def _build(context: GraphContext):
    from tfx.components import Evaluator

    from components import EvaluatorOfRecords

    config = context.config
    node = Evaluator if context.blessed_models is None else EvaluatorOfRecords
    return node(
        examples=context.output(NodeName.EXAMPLE_GEN, "examples"),
        example_splits=[config.data.evaluation_split],
        model=context.output(NodeName.TRAINER, "model"),
        baseline_model=context.output(NodeName.LATEST_BLESSED_MODEL, "model"),
        schema=context.schema(),
        eval_config=config.evaluation.eval_config(
            label=config.label.column, kind=config.label.kind, weight=config.features.weight
        ),
        module_path="components.column_evaluation",
    )


NODE = NodeSpec(
    name=NodeName.EVALUATOR,
    build=_build,
    after=(
        NodeName.EXAMPLE_GEN,
        NodeName.SCHEMA_GEN,
        NodeName.IMPORT_SCHEMA_GEN,
        NodeName.TRAINER,
        NodeName.LATEST_BLESSED_MODEL,
    ),
    section="evaluation",
    main_outputs=("evaluation",),
    rows="evaluated",
)
