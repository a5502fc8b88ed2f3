"""Optimizers: no option may act per replica or per micro-batch; several in a MultiOptimizer."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_module.common.keras_arguments import REPLACEMENTS

_PER_STEP = (
    *("clipnorm", "clipvalue", "global_clipnorm", "use_ema"),
    *("gradient_accumulation_steps", "loss_scale_factor"),
)


def check_optimizer(
    optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy
) -> None:
    """Raise ValueError for an optimizer with unsupported options or of another strategy.

    Unsupported options are those that would act per replica or per micro-batch.

    Args:
        optimizer: A Keras 3 optimizer.
        strategy: The strategy under which the optimizer was created.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "LossScaleOptimizer decides per replica whether gradients are finite: pass its inner "
            "optimizer; TrainStep scales losses itself for float16 models."
        )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"optimizer={optimizer!r} is not a Keras 3 optimizer: give one, such as "
            "keras.optimizers.Adam(1e-3)."
        )
    for one in each_optimizer(optimizer):
        for option in _PER_STEP:
            value = getattr(one, option, None)
            if value:
                raise ValueError(
                    f"optimizer {one.name!r} has {option}={value!r}: leave it out; "
                    f"{REPLACEMENTS[option]}."
                )
    if not strategy.extended.variable_created_in_scope(optimizer.iterations.value):
        raise ValueError(
            f"optimizer {optimizer.name!r} was not created under this strategy: create it inside "
            "`with strategy.scope():`."
        )


def is_several(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether it is a MultiOptimizer, which Keras has since 3.13."""
    kind = getattr(keras.optimizers, "MultiOptimizer", None)
    return kind is not None and isinstance(optimizer, kind)


def each_optimizer(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return the optimizer and those inside a MultiOptimizer (all of them once it is built)."""
    return [optimizer, *(optimizer.optimizers if is_several(optimizer) else ())]


def learning_rate_of(optimizer: keras.optimizers.Optimizer) -> float:
    """Return the rate of the next update; of a MultiOptimizer, that of its first optimizer."""
    rated = optimizer.optimizers[0] if is_several(optimizer) else optimizer
    return float(tf.convert_to_tensor(rated.learning_rate))
