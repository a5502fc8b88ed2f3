"""Training on large batches in plain TensorFlow: exact windows of micro-batches on any strategy.

The table of contents of the package. Names are loaded when first used, so that reading a
configuration (`from trainer_module import TrainerConfig`) does not wait for TensorFlow.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_module.accumulation import GradientSum, accumulate_gradients, mean_gradients
    from trainer_module.config import TrainerConfig
    from trainer_module.feature_layout import FeatureLayout
    from trainer_module.input_grad import input_gradients
    from trainer_module.loss import weighted_loss
    from trainer_module.micro_batch_size import MicroBatchSize, find_micro_batch_size
    from trainer_module.model_context import ModelContext
    from trainer_module.per_example import per_example_gradients
    from trainer_module.process import prepare_process
    from trainer_module.reduction import apply_gradients, sum_over_replicas
    from trainer_module.strategies import create_strategy
    from trainer_module.tfx_run import run_fn
    from trainer_module.tfx_tune import tuner_fn
    from trainer_module.train_step import TrainStep
    from trainer_module.training_loop import TrainingLoop
    from trainer_module.tuner_config import TunerConfig

_MODULE_OF = {
    "FeatureLayout": "feature_layout",
    "GradientSum": "accumulation",
    "MicroBatchSize": "micro_batch_size",
    "ModelContext": "model_context",
    "TrainStep": "train_step",
    "TrainerConfig": "config",
    "TrainingLoop": "training_loop",
    "TunerConfig": "tuner_config",
    "accumulate_gradients": "accumulation",
    "apply_gradients": "reduction",
    "create_strategy": "strategies",
    "find_micro_batch_size": "micro_batch_size",
    "input_gradients": "input_grad",
    "mean_gradients": "accumulation",
    "per_example_gradients": "per_example",
    "prepare_process": "process",
    "run_fn": "tfx_run",
    "sum_over_replicas": "reduction",
    "tuner_fn": "tfx_tune",
    "weighted_loss": "loss",
}

__all__ = [
    "FeatureLayout",
    "GradientSum",
    "MicroBatchSize",
    "ModelContext",
    "TrainStep",
    "TrainerConfig",
    "TrainingLoop",
    "TunerConfig",
    "accumulate_gradients",
    "apply_gradients",
    "create_strategy",
    "find_micro_batch_size",
    "input_gradients",
    "mean_gradients",
    "per_example_gradients",
    "prepare_process",
    "run_fn",
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
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
