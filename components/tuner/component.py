"""The Tuner node of a pipeline: `trainer_module.tuner_fn` and its configuration, checked early.

It is TFX's Tuner with TFX's executor. It adds that a wrong configuration is rejected while the
graph is built, not when the node runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx.components import Tuner
from tfx.proto.trainer_pb2 import EvalArgs, TrainArgs  # pyright: ignore[reportAttributeAccessIssue]
from tfx.types.channel import BaseChannel

from trainer_module.config import TrainerConfig
from trainer_module.tuning.tuner_config import TunerConfig

_TUNER_FN = "trainer_module.tuner_fn"


def create_tuner(
    *,
    examples: BaseChannel,
    transform_graph: BaseChannel,
    schema: BaseChannel,
    trainer: TrainerConfig | Mapping[str, Any],
    config: TunerConfig | Mapping[str, Any],
    code: str = "",
) -> Tuner:
    """Return TFX's Tuner that runs `trainer_module.tuner_fn`.

    Args:
        examples: channel of transformed Examples with the splits `train` and `eval`.
        transform_graph: channel of the TransformGraph that made them.
        schema: channel of the raw data's Schema.
        trainer: the training that is tuned, as a TrainerConfig or its fields.
        config: what is searched and how, as a TunerConfig or its fields.
        code: fingerprint of the code behind `tuner_fn` and the functions that `trainer` names; see
            `create_trainer`.

    Returns:
        The node, with the outputs `best_hyperparameters` and `tuner_results`.

    Raises:
        pydantic.ValidationError: (a ValueError) a field of a configuration is wrong.
        ValueError: what is searched does not fit the training.
    """
    training = TrainerConfig.model_validate(trainer)
    tuning = TunerConfig.model_validate(config)
    tuning.check(training)
    return Tuner(
        tuner_fn=_TUNER_FN,
        examples=examples,
        transform_graph=transform_graph,
        schema=schema,
        train_args=TrainArgs(),
        eval_args=EvalArgs(),
        custom_config={
            "trainer": training.model_dump(mode="json", exclude_none=True),
            "tuner": tuning.model_dump(mode="json", exclude_defaults=True),
            "code": code,
        },
    )
