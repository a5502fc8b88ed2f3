"""Training on large batches in plain TensorFlow: exact windows of micro-batches on any strategy.

The table of contents of the package. Names are loaded when first used, so that reading a
configuration (`from trainer_module import TrainerConfig`) does not wait for TensorFlow.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_module.config import TrainerConfig
    from trainer_module.data.feature_layout import FeatureLayout
    from trainer_module.devices.process import prepare_process
    from trainer_module.devices.strategies import create_strategy
    from trainer_module.gradients.inputs import input_gradients
    from trainer_module.gradients.per_example import per_example_gradients
    from trainer_module.loop.training_loop import TrainingLoop
    from trainer_module.memory.micro_batch_size import MicroBatchSize, find_micro_batch_size
    from trainer_module.model.model_context import ModelContext
    from trainer_module.parameter_server.parameter_server_step import ParameterServerStep
    from trainer_module.stages.placement import stage_strategy
    from trainer_module.stages.recompute import recompute
    from trainer_module.stages.split_model import split_model
    from trainer_module.stages.staged_model import StagedModel
    from trainer_module.step.train_step import TrainStep
    from trainer_module.tfx.run import run_fn
    from trainer_module.tfx.tune import tuner_fn
    from trainer_module.tuning.learning_rate import RangeTest, find_learning_rate
    from trainer_module.tuning.tuner_config import TunerConfig
    from trainer_module.window.accumulation import accumulate_gradients
    from trainer_module.window.gradient_sum import GradientSum
    from trainer_module.window.loss import weighted_loss
    from trainer_module.window.reduction import apply_gradients, sum_over_replicas
    from trainer_module.window.update import mean_gradients

_MODULE_OF = {
    "FeatureLayout": "trainer_module.data.feature_layout",
    "GradientSum": "trainer_module.window.gradient_sum",
    "MicroBatchSize": "trainer_module.memory.micro_batch_size",
    "ModelContext": "trainer_module.model.model_context",
    "RangeTest": "trainer_module.tuning.learning_rate",
    "ParameterServerStep": "trainer_module.parameter_server.parameter_server_step",
    "StagedModel": "trainer_module.stages.staged_model",
    "TrainStep": "trainer_module.step.train_step",
    "TrainerConfig": "trainer_module.config",
    "TrainingLoop": "trainer_module.loop.training_loop",
    "TunerConfig": "trainer_module.tuning.tuner_config",
    "accumulate_gradients": "trainer_module.window.accumulation",
    "apply_gradients": "trainer_module.window.reduction",
    "create_strategy": "trainer_module.devices.strategies",
    "find_learning_rate": "trainer_module.tuning.learning_rate",
    "find_micro_batch_size": "trainer_module.memory.micro_batch_size",
    "input_gradients": "trainer_module.gradients.inputs",
    "mean_gradients": "trainer_module.window.update",
    "per_example_gradients": "trainer_module.gradients.per_example",
    "prepare_process": "trainer_module.devices.process",
    "recompute": "trainer_module.stages.recompute",
    "run_fn": "trainer_module.tfx.run",
    "split_model": "trainer_module.stages.split_model",
    "stage_strategy": "trainer_module.stages.placement",
    "sum_over_replicas": "trainer_module.window.reduction",
    "tuner_fn": "trainer_module.tfx.tune",
    "weighted_loss": "trainer_module.window.loss",
}

__all__ = [
    "FeatureLayout",
    "GradientSum",
    "MicroBatchSize",
    "ModelContext",
    "RangeTest",
    "ParameterServerStep",
    "StagedModel",
    "TrainStep",
    "TrainerConfig",
    "TrainingLoop",
    "TunerConfig",
    "accumulate_gradients",
    "apply_gradients",
    "create_strategy",
    "find_learning_rate",
    "find_micro_batch_size",
    "input_gradients",
    "mean_gradients",
    "per_example_gradients",
    "prepare_process",
    "recompute",
    "run_fn",
    "split_model",
    "stage_strategy",
    "sum_over_replicas",
    "tuner_fn",
    "weighted_loss",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("tfx-largebatch")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
