"""Create Keras optimizers and learning-rate schedules by their names in the configuration."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Literal

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import Json
from trainer_module.options.task_options import OptimizerConfig, ScheduleConfig
from trainer_module.step.scaled_learning_rate import ScaledLearningRate


def _optimizer_class(name: str) -> type[keras.optimizers.Optimizer]:
    """Return the Keras class of that name; case is ignored."""
    classes = {
        key.lower(): value
        for key, value in vars(keras.optimizers).items()
        if inspect.isclass(value)
        and issubclass(value, keras.optimizers.Optimizer)
        and value not in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer)
    }
    try:
        return classes[name.lower().replace("_", "")]
    except KeyError:
        raise ValueError(
            f"trainer.optimizer.name={name!r} is not a Keras optimizer; {nearest(name, classes)}"
        ) from None


def create_optimizer(
    config: OptimizerConfig,
    total_steps: int,
    *,
    batch_sizes: int | Mapping[int, int] = 1,
    scaling: Literal["none", "linear", "sqrt"] = "none",
) -> keras.optimizers.Optimizer:
    """Return the optimizer. Call it in the strategy's scope.

    `total_steps` is the default end of a schedule; `scaling` is how the learning rate follows sizes
    of global batches by step.
    """
    kind = _optimizer_class(config.name)
    rate: float | keras.optimizers.schedules.LearningRateSchedule = config.learning_rate
    if config.schedule is not None:
        rate = _Schedule(config.learning_rate, config.schedule, total_steps)
    if scaling != "none" and isinstance(batch_sizes, Mapping):
        rate = ScaledLearningRate(rate, batch_sizes, scaling)
    options = dict(config.options)
    if config.weight_decay is not None:
        options["weight_decay"] = config.weight_decay
    try:
        return kind(learning_rate=rate, **options)
    except (TypeError, ValueError) as error:
        known = [p for p in inspect.signature(kind).parameters if p not in ("kwargs", "name")]
        raise ValueError(
            f"trainer.optimizer.options={config.options!r} do not fit {kind.__name__} ({error}): "
            f"it takes {', '.join(known)}."
        ) from None


@keras.saving.register_keras_serializable(package="trainer_module")
class _Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to the peak, then decay to 0."""

    def __init__(self, peak: float, config: ScheduleConfig, total_steps: int) -> None:
        self.peak = peak
        self.config = config
        self.total_steps = total_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        ops, config = keras.ops, self.config
        decay = max(1, self.total_steps - config.warmup_steps)
        step = ops.cast(step, "float32")
        done = ops.clip((step - config.warmup_steps) / decay, 0.0, 1.0)
        cosine = config.name == "cosine"
        share = 0.5 * (1.0 + ops.cos(math.pi * done)) if cosine else 1.0 - done
        if config.warmup_steps:
            share *= ops.minimum(1.0, (step + 1.0) / config.warmup_steps)
        return self.peak * share

    def get_config(self) -> dict[str, Json]:
        return {
            "peak": self.peak,
            "config": self.config.model_dump(),
            "total_steps": self.total_steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Json]) -> _Schedule:
        return cls(
            config["peak"], ScheduleConfig.model_validate(config["config"]), config["total_steps"]
        )
