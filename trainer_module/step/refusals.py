"""What TrainStep refuses, and what to do instead."""

from __future__ import annotations

import numbers
from typing import Any

import keras
import tensorflow as tf

from trainer_module.window.micro_batch import stateful_layers
from trainer_module.window.several_optimizers import each_optimizer


def check_options(
    micro_batch_size: int,
    clip_norm: float | None,
    ema_momentum: float | None,
    non_finite: str,
    added_losses: str | None,
    expected_rows: int | None,
) -> None:
    """Raises ValueError for a number out of its range or an unknown word."""
    if isinstance(micro_batch_size, bool) or not isinstance(micro_batch_size, numbers.Integral):
        raise ValueError(
            f"micro_batch_size={micro_batch_size!r}: use a whole number of rows; "
            "find_micro_batch_size finds the largest that fits into memory."
        )
    if micro_batch_size < 1:
        raise ValueError(f"micro_batch_size={micro_batch_size}: use at least 1 row.")
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"clip_norm={clip_norm}: use a number above 0, or None for no clipping.")
    if ema_momentum is not None and not 0 <= ema_momentum < 1:
        raise ValueError(f"ema_momentum={ema_momentum}: use a number from 0 to below 1, or None.")
    if non_finite not in ("raise", "skip"):
        raise ValueError(f"non_finite={non_finite!r}: use 'raise' or 'skip'.")
    if added_losses not in (None, "mean", "sum"):
        raise ValueError(f"added_losses={added_losses!r}: use 'mean' or 'sum'.")
    if expected_rows is not None and (
        isinstance(expected_rows, bool)
        or not isinstance(expected_rows, numbers.Integral)
        or expected_rows < 1
    ):
        raise ValueError(
            f"expected_rows={expected_rows!r}: use the whole number of rows that most global "
            "batches have, or None."
        )


def check_model(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Raises ValueError for a model of another library, or strategy, or with no exact window."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"model={type(model).__module__}.{type(model).__name__} is not a Keras 3 model: build "
            "it with `import keras`. Where TF_USE_LEGACY_KERAS is not 0, as TFX leaves it, "
            "tf.keras is another library."
        )
    if not model.built or not model.variables:
        raise ValueError(
            f"model {model.name!r} is not built: give it an Input, or call model.build(shape) in "
            "the strategy's scope, before TrainStep."
        )
    if not model.trainable_variables:
        raise ValueError(f"model {model.name!r} has no trainable variables: nothing to train.")
    for variable in model.trainable_variables:
        if not getattr(variable, "overwrite_with_gradient", False):
            continue
        raise ValueError(
            f"variable {variable.path!r} takes its gradient for its new value, as float8 "
            "quantisation does: such values do not add up over micro-batches. Train in "
            "mixed_bfloat16 and quantise afterwards."
        )
    for path in stateful_layers(model):
        raise ValueError(
            f"layer {path!r} is a BatchNormalization in training mode, whose statistics would be "
            "those of one micro-batch on one replica: use LayerNormalization or "
            "GroupNormalization, or freeze it with layer.trainable = False."
        )
    if not strategy.extended.variable_created_in_scope(model.trainable_variables[0].value):
        raise ValueError(
            f"model {model.name!r} was not created under this strategy: build it inside `with "
            "strategy.scope():`."
        )


_TAKEN_OVER = {
    "clipnorm": "it would clip each variable by itself",
    "global_clipnorm": "use clip_norm of TrainStep, which clips the reduced gradient once",
    "clipvalue": "it would change the direction of the window's gradient",
    "use_ema": "use ema_momentum of TrainStep",
    "gradient_accumulation_steps": "use micro_batch_size of TrainStep: windows are exact there",
    "loss_scale_factor": "TrainStep scales losses itself for float16 models",
}


def check_optimizer(optimizer: Any, strategy: tf.distribute.Strategy) -> None:
    """Raises ValueError for options that would act per replica or per micro-batch."""
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
        for option, instead in _TAKEN_OVER.items():
            value = getattr(one, option, None)
            if value:
                raise ValueError(
                    f"optimizer {one.name!r} has {option}={value!r}: leave it out; {instead}."
                )
    if not strategy.extended.variable_created_in_scope(optimizer.iterations.value):
        raise ValueError(
            f"optimizer {optimizer.name!r} was not created under this strategy: create it inside "
            "`with strategy.scope():`."
        )
