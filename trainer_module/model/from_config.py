"""What a configuration stands for: model and its inputs, optimizer, loss, options of the step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer_module.common.improvement import better_mode
from trainer_module.common.names import import_dotted, nearest
from trainer_module.config import DEFAULT_METRICS, TrainerConfig
from trainer_module.data.input_pipeline import Examples
from trainer_module.devices.strategies import check_strategy
from trainer_module.model.default_model import default_model
from trainer_module.model.metrics import create_metric, metric_label
from trainer_module.model.model_context import LabelKind, ModelContext
from trainer_module.model.optimizers import create_optimizer
from trainer_module.window.loss import LossFunction, WeightedLoss, as_loss_function

_DEFAULT_LOSS = {
    "binary": "binary_crossentropy",
    "multiclass": "sparse_categorical_crossentropy",
    "regression": "mean_squared_error",
}


def check_names(
    config: TrainerConfig, *, label_kind: LabelKind | None = None, section: str = "trainer"
) -> None:
    """Refuses a name that stands for nothing, before any data is read.

    It makes metrics, and so starts TensorFlow: call `prepare_process` before it.

    Args:
        config: The settings: strategy, optimizer and its options, loss, metrics, early stopping,
            activation, model_fn.
        label_kind: What a metric is made for; None where it is not known yet.
        section: How the settings are called in messages.

    Raises:
        ValueError: Names the setting, its value and the nearest valid name.
    """
    try:
        _check_names(config, label_kind)
    except ValueError as error:
        told = str(error)
        own = told.startswith("trainer.")
        raise ValueError(section + told.removeprefix("trainer") if own else told) from None


def _check_names(config: TrainerConfig, label_kind: LabelKind | None) -> None:
    check_strategy(config.strategy)
    # The optimizer's options, too; a schedule's length has no say in that.
    create_optimizer(config.optimizer, total_steps=1)
    if config.loss is not None:
        loss_function(config, label_kind or "binary")
    metrics = config.metrics
    for name in metrics or ():
        create_metric(name, label_kind or "binary")
    if metrics is None and label_kind is not None:
        metrics = DEFAULT_METRICS[label_kind]
    if metrics is not None:
        check_monitor(config, metrics)
    if config.model_fn is not None:
        _model_fn(config.model_fn)
    else:
        _check_activation(config.model.activation)


def _check_activation(name: str) -> None:
    try:
        keras.activations.get(name)
    except ValueError:
        known = [key for key in vars(keras.activations) if not key.startswith("_")]
        raise ValueError(
            f"trainer.model.activation={name!r} is not a Keras activation; {nearest(name, known)}"
        ) from None


def distinct_by_name(configs: Iterable[TrainerConfig]) -> list[TrainerConfig]:
    """Returns one of the configurations for each combination of names that `check_names` knows."""
    found = {
        (
            c.strategy,
            c.optimizer.name,
            repr(c.optimizer.options),
            c.loss,
            c.metrics,
            c.early_stopping,
            c.model_fn,
            c.model.activation,
        ): c
        for c in configs
    }
    return list(found.values())


def check_monitor(config: TrainerConfig, metrics: Sequence[str]) -> None:
    """Raises ValueError for early stopping by something that is not among the metrics."""
    stopping = config.early_stopping
    if stopping is None:
        return
    known = ["loss", *(metric_label(name) for name in metrics)]
    # A metric with a value per class is called f1_score/0, f1_score/1, ...
    if stopping.monitor.partition("/")[0] not in known:
        raise ValueError(
            f"trainer.early_stopping.monitor={stopping.monitor!r} is not evaluated; "
            f"{nearest(stopping.monitor, known)}"
        )
    better_mode(stopping.monitor, stopping.mode, field="trainer.early_stopping.mode")


def loss_function(config: TrainerConfig, kind: LabelKind) -> LossFunction:
    """Returns the configured loss, or the one that fits the kind of label.

    Raises:
        ValueError: There is no such loss.
    """
    loss: Any = config.loss or _DEFAULT_LOSS[kind]
    if "." in loss:
        loss = import_dotted(loss, field="trainer.loss")
        if isinstance(loss, type):
            loss = loss()
    try:
        function = as_loss_function(loss)
    except ValueError as error:
        raise ValueError(f"trainer.{error}") from None
    if not config.class_weight:
        return function
    if kind == "regression":
        raise ValueError(
            f"trainer.class_weight={config.class_weight}: label is a number, which has no classes; "
            "leave it out, or choose a loss of classes."
        )
    if not isinstance(function, WeightedLoss):
        raise ValueError(
            f"trainer.class_weight={config.class_weight}: trainer.loss={config.loss!r} weighs rows "
            "itself; leave it out, or give a loss function of (labels, outputs)."
        )
    return dataclasses.replace(function, class_weight=config.class_weight)


def build_model(context: ModelContext) -> keras.Model:
    """Returns what `model_fn` builds, or the default model; call it in the strategy's scope.

    Raises:
        ValueError: `model_fn` returns no Keras 3 model.
    """
    path = context.config.model_fn
    if path is None:
        return default_model(context)
    model = _model_fn(path)(context)
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"trainer.model_fn={path!r} returned {type(model).__module__}.{type(model).__name__}, "
            "not a keras.Model: return a Keras 3 model (import keras, not tf_keras)."
        )
    if not model.built:
        model(
            {
                name: tf.zeros([1, *feature.shape], feature.dtype)
                for name, feature in context.feature_spec.items()
            }
        )
    return model


def build_all(context: ModelContext, total_steps: int) -> tuple[keras.Model, Any, LossFunction]:
    """Returns model, optimizer and loss; also called in processes that measure memory.

    Args:
        context: What the model is built from.
        total_steps: Optimizer steps of the whole run, for the learning-rate schedule.

    Raises:
        ValueError: As `build_model`, or an option that the optimizer does not take.
    """
    config = context.config
    model = build_model(context)
    optimizer = create_optimizer(config.optimizer, total_steps)
    return model, optimizer, loss_function(config, context.label_kind)


def step_options(config: TrainerConfig) -> dict[str, Any]:
    """Returns the arguments of TrainStep that are settings of the same name."""
    return {
        "clip_norm": config.clip_norm,
        "ema_momentum": config.ema_momentum,
        "non_finite": config.non_finite,
        "jit_compile": config.jit_compile,
    }


def narrowed(examples: Examples, inputs: Sequence[str]) -> Examples:
    """Returns the examples with the model's inputs, label and weight only."""
    spec = {
        name: feature
        for name, feature in examples.feature_spec.items()
        if name in inputs or name in (examples.label, examples.weight)
    }
    return dataclasses.replace(examples, feature_spec=spec)


def inputs_of(model: keras.Model, context: ModelContext) -> list[str]:
    """Returns the transformed features that the model takes; all, where it does not say.

    Raises:
        ValueError: It has an input that is no transformed feature.
    """
    tensors = getattr(model, "inputs", None)
    if not tensors:
        return list(context.feature_spec)
    structure = model.input
    names = list(structure) if isinstance(structure, dict) else [t.name for t in tensors]
    for name in names:
        if name not in context.feature_spec:
            if context.layout is not None and name in context.layout.passthrough:
                raise ValueError(
                    f"trainer.model_fn={context.config.model_fn!r} returned a model with an input "
                    f"{name!r}, which features.passthrough names: such columns are for who reads "
                    "the rows, no model takes them. Put it into a group of features instead."
                )
            raise ValueError(
                f"trainer.model_fn={context.config.model_fn!r} returned a model with an input "
                f"{name!r} that is no transformed feature; {nearest(name, context.feature_spec)}"
            )
    return names


def check_outputs(
    model: keras.Model, loss_fn: LossFunction, metrics: Sequence[str], config: TrainerConfig
) -> None:
    """Raises ValueError for a model of several outputs whose loss or metrics are of one.

    Args:
        model: What `build_model` returned; one that does not say its outputs passes.
        loss_fn: What `loss_function` returned.
        metrics: The names of those that are evaluated.
        config: The settings, for the message.
    """
    outputs = getattr(model, "outputs", None) or ()
    if len(outputs) < 2 or not (isinstance(loss_fn, WeightedLoss) or metrics):
        return
    structure = model.output
    names = list(structure) if isinstance(structure, dict) else [t.name for t in outputs]
    raise ValueError(
        f"trainer.model_fn={config.model_fn!r} returned a model with {len(outputs)} outputs "
        f"({', '.join(names)}), and the examples have one label: trainer.loss={config.loss!r} has "
        "to be the dotted path of a function (labels, outputs, sample_weight) -> (numerator, "
        f"denominator) that takes all of them, and trainer.metrics={list(metrics)} has to be []. "
        "Labels, losses and metrics for each output are what TrainStep and Evaluation take."
    )


def _model_fn(path: str) -> Any:
    function = import_dotted(path, field="trainer.model_fn")
    if not callable(function):
        raise ValueError(
            f"trainer.model_fn={path!r} is a {type(function).__name__}, not a function: give a "
            "function (ModelContext) -> keras.Model."
        )
    return function
