"""A plan: the objects that the names in a configuration refer to, resolved once.

    plan = resolve(config)                  # strategy, optimizer, model_fn, loss, metrics, monitor
    plan = plan.of_label("binary")          # once the label's kind is known: defaults of that kind
    model, optimizer, loss_fn = plan.build(context, total_steps)

`run_fn`, `tuner_fn` and the preflight of a pipeline resolve before any data is read, so that
unknown names are reported early. Methods of the plan create objects with variables, in the scope of
a strategy, for each model again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import Json, LossFunction, LossLike
from trainer_module.common.user_values import better_mode, import_dotted
from trainer_module.config import DEFAULT_METRICS, TrainerConfig
from trainer_module.devices.strategies import check_strategy
from trainer_module.losses.weighted_loss import WeightedLoss, as_loss_function
from trainer_module.model.default_model import default_model
from trainer_module.model.metrics import create_metric, result_name
from trainer_module.model.model_context import LabelKind, ModelContext, ModelFn
from trainer_module.model.optimizers import create_optimizer
from trainer_module.options.step_options import UpdateOptions
from trainer_module.stages.recompute import recompute_layers

_DEFAULT_LOSS = {
    "binary": "binary_crossentropy",
    "multiclass": "sparse_categorical_crossentropy",
    "regression": "mean_squared_error",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """A configuration and the objects that its names refer to."""

    config: TrainerConfig
    model_fn: ModelFn | None  # builds the model; None for the default model
    label_kind: LabelKind | None  # kind of the label; None while unknown
    loss: LossFunction | None  # the loss; None while it is the default of an unknown kind
    # Names of the evaluated metrics; None while they are the defaults of an unknown kind
    metrics: tuple[str, ...] | None

    def of_label(self, kind: LabelKind) -> Plan:
        """Return the plan for a kind of label, with its default loss and metrics."""
        config = self.config
        metrics = DEFAULT_METRICS[kind] if self.metrics is None else self.metrics
        _check_monitor(config, metrics)
        loss = self.loss or as_loss_function(_DEFAULT_LOSS[kind])
        return dataclasses.replace(
            self, label_kind=kind, loss=_with_class_weights(loss, config, kind), metrics=metrics
        )

    def build(
        self, context: ModelContext, total_steps: int
    ) -> tuple[keras.Model, keras.optimizers.Optimizer, LossFunction]:
        """Return model, optimizer and loss. Call it in the strategy's scope.

        Schedules of the learning rate and of `model.sparsity` are for `total_steps`.
        """
        plan = self if self.label_kind is not None else self.of_label(context.label_kind)
        assert plan.loss is not None
        model = plan._model(dataclasses.replace(context, total_steps=total_steps))
        plan._check_outputs(model)
        recompute_layers(model, plan.config.recompute, field="trainer.recompute")
        return model, plan.create_optimizer(total_steps), plan.loss

    def create_optimizer(self, total_steps: int) -> keras.optimizers.Optimizer:
        """Return a new optimizer. Call it in the strategy's scope."""
        config = self.config
        return create_optimizer(
            config.optimizer,
            total_steps,
            batch_sizes=config.global_batch_size,
            scaling=config.scale_learning_rate,
        )

    def create_metrics(self) -> list[keras.metrics.Metric]:
        """Return the metrics; the label's kind must be known. Call it in the strategy's scope."""
        assert self.label_kind is not None
        return [create_metric(name, self.label_kind) for name in self.metrics or ()]

    @property
    def step_options(self) -> dict[str, Json]:
        """The settings that are arguments of TrainStep with the same name."""
        return {name: getattr(self.config, name) for name in UpdateOptions.model_fields}

    def _model(self, context: ModelContext) -> keras.Model:
        """Return the model of `model_fn`, or the default model."""
        if self.model_fn is None:
            return default_model(context)
        model = self.model_fn(context)
        if not isinstance(model, keras.Model):
            raise ValueError(
                f"trainer.model_fn={self.config.model_fn!r} returned "
                f"{type(model).__module__}.{type(model).__name__}, not a keras.Model: return a "
                "Keras 3 model (import keras, not tf_keras)."
            )
        if not model.built:
            model(
                {
                    name: tf.zeros([1, *(axis or 1 for axis in feature.shape)], feature.dtype)
                    for name, feature in context.feature_spec.items()
                }
            )
        return model

    def _check_outputs(self, model: keras.Model) -> None:
        """Raise ValueError if a model has several outputs but loss or metrics are for one."""
        outputs = getattr(model, "outputs", None) or ()
        if len(outputs) < 2 or not (isinstance(self.loss, WeightedLoss) or self.metrics):
            return
        structure = model.output
        names = list(structure) if isinstance(structure, dict) else [t.name for t in outputs]
        raise ValueError(
            f"trainer.model_fn={self.config.model_fn!r} returned a model with {len(outputs)} "
            f"outputs ({', '.join(names)}), and the examples have one label: "
            f"trainer.loss={self.config.loss!r} must be the dotted path of a function (labels, "
            "outputs, sample_weight) -> (numerator, denominator) of all outputs, and "
            f"trainer.metrics={list(self.metrics or ())} must be []. For labels, losses and "
            "metrics per output, use TrainStep and Evaluation in a program."
        )


def resolve(
    config: TrainerConfig, *, label_kind: LabelKind | None = None, section: str = "trainer"
) -> Plan:
    """Return the objects that the names in a configuration refer to, before any data is read.

    It creates metrics to check them, which starts TensorFlow: call `prepare_process` before it.

    `section` is the name of the settings in messages.
    """
    try:
        return _resolve(config, label_kind)
    except ValueError as error:
        message = str(error)
        if message.startswith("trainer."):
            message = section + message.removeprefix("trainer")
        raise ValueError(message) from None


def resolve_all(
    configs: Iterable[TrainerConfig],
    *,
    label_kind: LabelKind | None = None,
    section: str = "trainer",
) -> list[Plan]:
    """Resolve one configuration for each combination of names in the configurations."""
    distinct = {
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
    return [resolve(c, label_kind=label_kind, section=section) for c in distinct.values()]


def build_resolved(
    context: ModelContext, total_steps: int
) -> tuple[keras.Model, keras.optimizers.Optimizer, LossFunction]:
    """Return model, optimizer and loss in a process that measures memory; see `Plan.build`."""
    return resolve(context.config, label_kind=context.label_kind).build(context, total_steps)


def _resolve(config: TrainerConfig, kind: LabelKind | None) -> Plan:
    try:
        check_strategy(config.strategy)
    except ValueError as error:
        raise ValueError(f"trainer.{error}") from None
    # This also checks the optimizer's options. The length of a schedule does not matter.
    create_optimizer(config.optimizer, total_steps=1)
    loss = None if config.loss is None else _loss(config.loss)
    for name in config.metrics or ():
        create_metric(name, kind or "binary")
    if config.metrics is not None:
        _check_monitor(config, config.metrics)
    model_fn = None if config.model_fn is None else _model_fn(config.model_fn)
    plan = Plan(config, model_fn, None, loss, config.metrics)
    return plan if kind is None else plan.of_label(kind)


def _loss(name: str) -> LossFunction:
    loss: LossLike = name
    if "." in name:
        loss = import_dotted(name, field="trainer.loss")
        if isinstance(loss, type):
            loss = loss()
    try:
        return as_loss_function(loss)
    except ValueError as error:
        raise ValueError(f"trainer.{error}") from None


def _with_class_weights(
    function: LossFunction, config: TrainerConfig, kind: LabelKind
) -> LossFunction:
    """Return the loss with its class weights."""
    if not config.class_weight:
        return function
    if kind == "regression":
        raise ValueError(
            f"trainer.class_weight={config.class_weight!r}: the label is a number and has no "
            "classes; leave it out, or choose a classification loss."
        )
    if not isinstance(function, WeightedLoss):
        raise ValueError(
            f"trainer.class_weight={config.class_weight!r}: trainer.loss={config.loss!r} weighs "
            "the rows; leave it out, or give a loss function of (labels, outputs)."
        )
    weights = config.class_weight
    if isinstance(weights, str) or any(isinstance(name, str) for name in weights):
        return function  # `train` finds the numbers, from the rows and the class names
    return dataclasses.replace(function, class_weight=weights)


def _check_monitor(config: TrainerConfig, metrics: Sequence[str]) -> None:
    """Raise ValueError if early stopping monitors something that is not among the metrics."""
    stopping = config.early_stopping
    if stopping is None:
        return
    known = ["loss", *(result_name(name) for name in metrics)]
    # A metric with one value per class has the names f1_score/0, f1_score/1, ...
    if stopping.monitor.partition("/")[0] not in known:
        raise ValueError(
            f"trainer.early_stopping.monitor={stopping.monitor!r} is not evaluated; "
            f"{nearest(stopping.monitor, known)}"
        )
    better_mode(stopping.monitor, stopping.mode, field="trainer.early_stopping.mode")


def _model_fn(path: str) -> ModelFn:
    function = import_dotted(path, field="trainer.model_fn")
    if not callable(function):
        raise ValueError(
            f"trainer.model_fn={path!r} is a {type(function).__name__}, not a function: give a "
            "function (ModelContext) -> keras.Model."
        )
    return function
