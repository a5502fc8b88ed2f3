"""The Trainer and Tuner nodes: `trainer_module`'s functions and their configuration, checked early.

They are TFX's with TFX's executors. What is added is that a wrong configuration is rejected while
the graph is built, not when the node runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx.components import Trainer, Tuner
from tfx.proto.trainer_pb2 import EvalArgs, TrainArgs  # pyright: ignore[reportAttributeAccessIssue]
from tfx.types.channel import BaseChannel

from trainer_module.config import TrainerConfig
from trainer_module.tuning.tuner_config import TunerConfig


def create_trainer(
    *,
    examples: BaseChannel,
    transform_graph: BaseChannel,
    schema: BaseChannel,
    config: TrainerConfig | Mapping[str, Any],
    hyperparameters: BaseChannel | None = None,
    code: str = "",
    baselines: str | None = None,
    input_gradients: bool = False,
    reading: Mapping[str, Any] | None = None,
) -> Trainer:
    """Return TFX's Trainer that runs `trainer_module.run_fn`.

    Args:
        examples: channel of transformed Examples with the splits `train` and `eval`.
        transform_graph: channel of the TransformGraph that made them.
        schema: channel of the raw data's Schema.
        config: how to train, as a TrainerConfig or its fields.
        hyperparameters: channel of a Tuner's best HyperParameters, named by the paths of config's
            fields (`optimizer.learning_rate`), whose places they take.
        code: fingerprint of the code behind `run_fn` and `config.model_fn`. TFX's cache does not
            see the code of functions named by a dotted path: a changed fingerprint makes it
            train again.
        baselines: a split: also write what a constant and a linear model reach on its rows, as
            `baselines.json` of `model_run`.
        input_gradients: also export the signature that the component InputGradients needs.
        reading: how the cells of the data were read, for readers of raw rows: the export has it as
            `assets.extra/reading.json`.

    Returns:
        The node, with the outputs `model` and `model_run`.

    Raises:
        pydantic.ValidationError: (a ValueError) a field of the configuration is wrong.
    """
    checked = TrainerConfig.model_validate(config)
    return Trainer(
        run_fn="trainer_module.run_fn",
        examples=examples,
        transform_graph=transform_graph,
        schema=schema,
        hyperparameters=hyperparameters,
        train_args=TrainArgs(),
        eval_args=EvalArgs(),
        custom_config={
            "trainer": checked.model_dump(mode="json", exclude_none=True),
            "code": code,
            **({"baselines": baselines} if baselines else {}),
            **({"input_gradients": True} if input_gradients else {}),
            **({"reading": dict(reading)} if reading else {}),
        },
    )


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
        examples: as those of `create_trainer`.
        transform_graph: the same.
        schema: the same.
        trainer: the training that is tuned, as a TrainerConfig or its fields.
        config: what is searched and how, as a TunerConfig or its fields.
        code: fingerprint of the code behind `tuner_fn` and the functions that `trainer` names.

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
        tuner_fn="trainer_module.tuner_fn",
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
