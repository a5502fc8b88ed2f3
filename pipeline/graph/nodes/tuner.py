"""Tuner: searches for better settings of the training."""

from __future__ import annotations

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec
from pipeline.graph.nodes.trainer import TRAINING_DATA, trainer_code, training_data


def _build(context: GraphContext):
    from components import create_tuner

    config = context.config
    assert config.tuning is not None
    return create_tuner(
        **training_data(context),
        trainer=config.training,
        config=config.tuning,
        code=trainer_code(config),
    )


NODE = NodeSpec(
    name=NodeName.TUNER,
    build=_build,
    after=TRAINING_DATA,
    section="tuning",
    is_used=lambda context: context.config.tuning is not None,
    main_outputs=("best_hyperparameters",),
)
