"""Trainer: trains the model and exports it."""

from __future__ import annotations

from pipeline.common.fingerprint import fingerprint
from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec

TRAINING_DATA = (
    NodeName.TRANSFORM,
    NodeName.SCHEMA_GEN,
    NodeName.IMPORT_SCHEMA_GEN,
    NodeName.NORMALIZATION_VALIDATOR,  # nothing is trained on features that it refused
)
"""What Trainer and Tuner run after."""


def training_data(context: GraphContext) -> JsonObject:
    """Return the inputs that Trainer and Tuner share."""
    return {
        "examples": context.output(NodeName.TRANSFORM, "transformed_examples"),
        "transform_graph": context.output(NodeName.TRANSFORM, "transform_graph"),
        "schema": context.schema(),
    }


def trainer_code(config: PipelineConfig) -> str:
    """Return the fingerprint of the code that Trainer and Tuner run."""
    return fingerprint(["trainer_module", "shared_core"], config.training_functions)


def _build(context: GraphContext):
    from components import create_trainer

    config = context.config
    found = None
    if NodeName.TUNER in context.nodes:
        found = context.output(NodeName.TUNER, "best_hyperparameters")
    return create_trainer(
        **training_data(context),
        config=config.training,
        hyperparameters=found,
        code=trainer_code(config),
        baselines=config.data.evaluation_split if config.evaluation.baselines else None,
        input_gradients=config.explain is not None,
        reading={
            "version": 1,
            "source": config.data.source,
            "csv": config.data.csv.model_dump(mode="json") if config.data.source == "csv" else None,
        },
    )


NODE = NodeSpec(
    name=NodeName.TRAINER,
    build=_build,
    after=(*TRAINING_DATA, NodeName.TUNER),
    section="training",
    main_outputs=("model",),
)
