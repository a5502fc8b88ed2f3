"""TFX's door to the trainer: `tfx.components.Trainer(run_fn="trainer_module.run_fn", ...)`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from trainer_module.actions import Action, EarlyStopping, FitResult, ProgressLog, TensorBoardScalars
from trainer_module.checkpoints import Checkpoints
from trainer_module.config import DEFAULT_EPOCHS, TrainerConfig
from trainer_module.data_context import TransformedData, model_context, unsized_ids
from trainer_module.default_model import default_model
from trainer_module.evaluation import Evaluation
from trainer_module.export import export_model
from trainer_module.feature_layout import FeatureLayout
from trainer_module.improvement import better_mode
from trainer_module.input_pipeline import DataSummary, Examples, expand, summarise
from trainer_module.loss import LossFunction, as_loss_function
from trainer_module.metrics import DEFAULT_METRICS, create_metric, metric_label
from trainer_module.micro_batch_size import MemoryBudgetError, find_micro_batch_size
from trainer_module.model_context import LabelKind, ModelContext
from trainer_module.names import import_dotted, nearest
from trainer_module.optimizers import create_optimizer, optimizer_class
from trainer_module.strategies import create_strategy, grow_gpu_memory
from trainer_module.train_step import TrainStep
from trainer_module.training_loop import TrainingLoop

_DEFAULT_LOSS = {
    "binary": "binary_crossentropy",
    "multiclass": "sparse_categorical_crossentropy",
    "regression": "mean_squared_error",
}
# What says how a run goes but not where it ends.
_NOT_IN_FINGERPRINT = {
    "strategy",
    "logical_devices",
    "steps_per_loop",
    "checkpoint_dir",
    "checkpoint_every_steps",
    "keep_checkpoints",
    "tensorboard",
    "memory_budget",
    "memory_cache_dir",
}


def run_fn(fn_args: Any) -> FitResult:
    """Trains on Transform's output and exports a SavedModel.

    Everything comes from `fn_args.custom_config["trainer"]`, a `TrainerConfig` as JSON. TFX's own
    `train_args.num_steps` counts only if it is above 0 and the configuration gives neither steps
    nor epochs (then 10 epochs); `eval_args` is ignored: every eval row is evaluated after each
    epoch.

    Args:
        fn_args: TFX's FnArgs: train_files, eval_files, transform_output, model_run_dir,
            serving_model_dir, custom_config.

    Raises:
        ValueError: A setting that is wrong or does not fit the data; raised before training starts.
        NonFiniteError: The loss or a gradient became NaN or infinite (see `non_finite`).
    """
    config = TrainerConfig.parse((fn_args.custom_config or {}).get("trainer"))
    if getattr(fn_args, "hyperparameters", None):
        raise ValueError(
            "the Trainer got hyperparameters from a Tuner, which run_fn does not read yet: write "
            'the tuned values into custom_config["trainer"], and remove them from the Trainer.'
        )
    _check_names(config)
    if config.micro_batch_size == "auto":
        grow_gpu_memory()
    strategy = create_strategy(config.strategy, logical_devices=config.logical_devices)
    data = _open(fn_args, config)
    summary = summarise(data.train, id_features=unsized_ids(data))
    if config.global_batch_size > summary.rows:
        raise ValueError(
            f"trainer.global_batch_size={config.global_batch_size} exceeds the {summary.rows} "
            f"training rows: use {summary.rows} or less."
        )
    context = model_context(config, data, summary)
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(config.precision)
    keras.utils.set_random_seed(config.seed)
    try:
        return _train(fn_args, context, data, summary, strategy)
    finally:
        keras.config.set_dtype_policy(policy)


def _train(
    fn_args: Any,
    context: ModelContext,
    data: TransformedData,
    summary: DataSummary,
    strategy: tf.distribute.Strategy,
) -> FitResult:
    config = context.config
    epochs, steps = _length(config, getattr(fn_args, "train_steps", None))
    steps_per_epoch = math.ceil(summary.rows / config.global_batch_size)
    total_steps = steps if steps is not None else (epochs or 1) * steps_per_epoch
    names = DEFAULT_METRICS[context.label_kind] if config.metrics is None else config.metrics
    _check_monitor(config, names)
    micro_batch = config.micro_batch_size
    if micro_batch is None:
        micro_batch = math.ceil(config.global_batch_size / strategy.num_replicas_in_sync)
    elif micro_batch == "auto":
        micro_batch = _find_micro_batch_size(fn_args, context, data.train, total_steps, strategy)
    with strategy.scope():
        model, optimizer, loss_fn = _build(context, total_steps)
        metrics = [create_metric(name, context.label_kind) for name in names]
    # What the model does not take is not read: files may hold many more features.
    inputs = _inputs_of(model, context)
    train = _narrowed(data.train, inputs)
    step = TrainStep(
        model,
        optimizer,
        loss_fn,
        micro_batch_size=micro_batch,
        strategy=strategy,
        **_step_options(config),
    )
    evaluate = None
    if data.eval_files:
        held_out = dataclasses.replace(train, files=data.eval_files)
        rows = micro_batch * strategy.num_replicas_in_sync
        evaluate = Evaluation(
            model, loss_fn, held_out.batches(rows), metrics=metrics, strategy=strategy
        )
    actions = _actions(config, model, fn_args, strategy, has_eval=evaluate is not None)
    checkpoints = Checkpoints(
        _checkpoint_dir(fn_args, config),
        step,
        fingerprint=_fingerprint(config, train, summary),
        keep=config.keep_checkpoints,
        every_steps=config.checkpoint_every_steps,
        further_variables=[v for action in actions for v in action.variables()],
    )
    logging.info(
        "Training on %s rows: %d steps of %d rows, on %d replica(s) in micro-batches of %d rows",
        f"{summary.rows:,}",
        total_steps,
        config.global_batch_size,
        strategy.num_replicas_in_sync,
        micro_batch,
    )
    result = TrainingLoop(
        step,
        train.shuffled_batches(
            config.global_batch_size,
            shuffle_buffer_rows=config.shuffle_buffer_rows,
            seed=config.seed,
        ),
        epochs=epochs,
        steps=steps,
        steps_per_epoch=steps_per_epoch,
        steps_per_loop=config.steps_per_loop,
        evaluate=evaluate,
        actions=actions,
        checkpoints=checkpoints,
    ).fit()
    export_model(
        model,
        data.transform_output,
        fn_args.serving_model_dir,
        inputs=inputs,
        label_sources=None if data.layout is None else data.layout.label_sources,
    )
    return result


def _build(context: ModelContext, total_steps: int) -> tuple[keras.Model, Any, LossFunction]:
    """Returns model, optimizer and loss; called here, and in processes that measure memory."""
    config = context.config
    model = _model(context)
    optimizer = create_optimizer(config.optimizer, total_steps)
    return model, optimizer, _loss_function(config, context.label_kind)


def _step_options(config: TrainerConfig) -> dict[str, Any]:
    return {
        "clip_norm": config.clip_norm,
        "ema_momentum": config.ema_momentum,
        "non_finite": config.non_finite,
        "jit_compile": config.jit_compile,
    }


def _narrowed(examples: Examples, inputs: Sequence[str]) -> Examples:
    spec = {
        name: feature
        for name, feature in examples.feature_spec.items()
        if name in inputs or name in (examples.label, examples.weight)
    }
    return dataclasses.replace(examples, feature_spec=spec)


def _find_micro_batch_size(
    fn_args: Any,
    context: ModelContext,
    train: Examples,
    total_steps: int,
    strategy: tf.distribute.Strategy,
) -> int:
    """Returns the size, and leaves what was found in the run's folder."""
    config = context.config

    def first_rows(model: keras.Model) -> Any:
        rows = _narrowed(train, _inputs_of(model, context)).batches(1)
        return next(rows.take(1).as_numpy_iterator())

    try:
        found = find_micro_batch_size(
            f"{__name__}._build",
            first_rows,
            arguments=(context, total_steps),
            global_batch_size=config.global_batch_size,
            strategy=strategy,
            memory_budget=config.memory_budget,
            cache_dir=config.memory_cache_dir,
            record_dir=_checkpoint_dir(fn_args, config),
            **_step_options(config),
        )
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"trainer.{error}") from None
    keras.utils.set_random_seed(config.seed)  # as it was: the search has built a model of its own
    tf.io.gfile.makedirs(_run_dir(fn_args))
    with tf.io.gfile.GFile(os.path.join(_run_dir(fn_args), "micro_batch_size.json"), "w") as stream:
        stream.write(json.dumps(found._asdict(), indent=1) + "\n")
    return found.rows


def _checkpoint_dir(fn_args: Any, config: TrainerConfig) -> str:
    return config.checkpoint_dir or os.path.join(_run_dir(fn_args), "checkpoints")


def _check_names(config: TrainerConfig) -> None:
    """Refuses names that stand for nothing, before any data is read."""
    optimizer_class(config.optimizer.name)
    if config.loss is not None:
        _loss_function(config, "binary")
    for name in config.metrics or ():
        create_metric(name, "binary")
    if config.model_fn is not None:
        _model_fn(config.model_fn)
    if config.metrics is not None:
        _check_monitor(config, config.metrics)


def _check_monitor(config: TrainerConfig, metrics: Sequence[str]) -> None:
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


def _open(fn_args: Any, config: TrainerConfig) -> TransformedData:
    import tensorflow_transform as tft

    uri = getattr(fn_args, "transform_output", None) or getattr(
        fn_args, "transform_graph_path", None
    )
    if not uri:
        raise ValueError(
            "trainer_module.run_fn needs Transform's output: give the Trainer "
            'transform_graph=transform.outputs["transform_graph"] and '
            'examples=transform.outputs["transformed_examples"].'
        )
    transform_output = tft.TFTransformOutput(uri)
    spec: dict[str, Any] = transform_output.transformed_feature_spec()
    layout = FeatureLayout.from_transform_graph(uri)
    label = config.label or (layout.label.name if layout and layout.label else None)
    if label is None:
        raise ValueError(
            "trainer.label is not set and Transform's output names none: give the transformed "
            f"feature to predict, one of {', '.join(sorted(spec))}."
        )
    weight = config.weight or (layout.weight if layout else None)
    for field, name in (("label", label), ("weight", weight)):
        if name is not None and name not in spec:
            raise ValueError(
                f"trainer.{field}={name!r} is not among the transformed features; "
                f"{nearest(name, spec)}"
            )
    if layout is not None and layout.missing is not None:
        spec.pop(layout.missing, None)
    for name, feature in spec.items():
        if not isinstance(feature, tf.io.FixedLenFeature):
            raise ValueError(
                f"transformed feature {name!r} has a varying number of values per row: make it "
                "dense in preprocessing_fn (tf.sparse.to_dense and a fixed shape)."
            )
    train_files = expand(fn_args.train_files or [], what="the train split of the examples")
    if not train_files:
        raise ValueError("the examples have no train split: give the Trainer transformed examples.")
    eval_files = expand(fn_args.eval_files or [], what="the eval split of the examples")
    return TransformedData(
        transform_output, layout, Examples(train_files, spec, label, weight), eval_files
    )


def _loss_function(config: TrainerConfig, kind: LabelKind) -> LossFunction:
    loss: Any = config.loss or _DEFAULT_LOSS[kind]
    if "." in loss:
        loss = import_dotted(loss, field="trainer.loss")
        if isinstance(loss, type):
            loss = loss()
    try:
        return as_loss_function(loss)
    except ValueError as error:
        raise ValueError(f"trainer.{error}") from None


def _model_fn(path: str) -> Any:
    function = import_dotted(path, field="trainer.model_fn")
    if not callable(function):
        raise ValueError(
            f"trainer.model_fn={path!r} is a {type(function).__name__}, not a function: give a "
            "function (ModelContext) -> keras.Model."
        )
    return function


def _model(context: ModelContext) -> keras.Model:
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


def _inputs_of(model: keras.Model, context: ModelContext) -> list[str]:
    """Returns the transformed features that the model takes; all, where it does not say."""
    tensors = getattr(model, "inputs", None)
    if not tensors:
        return list(context.feature_spec)
    structure = model.input
    names = list(structure) if isinstance(structure, dict) else [t.name for t in tensors]
    for name in names:
        if name not in context.feature_spec:
            raise ValueError(
                f"trainer.model_fn={context.config.model_fn!r} returned a model with an input "
                f"{name!r} that is no transformed feature; {nearest(name, context.feature_spec)}"
            )
    return names


def _length(config: TrainerConfig, train_steps: int | None) -> tuple[int | None, int | None]:
    if config.epochs is not None or config.steps is not None:
        return config.epochs, config.steps
    if train_steps is not None and train_steps > 0:
        return None, train_steps
    return DEFAULT_EPOCHS, None


def _actions(
    config: TrainerConfig,
    model: keras.Model,
    fn_args: Any,
    strategy: tf.distribute.Strategy,
    *,
    has_eval: bool,
) -> list[Action]:
    actions: list[Action] = [ProgressLog()]
    if config.tensorboard:
        actions.append(TensorBoardScalars(_run_dir(fn_args)))
    if config.early_stopping is not None:
        if not has_eval:
            raise ValueError(
                "trainer.early_stopping needs an eval split, and the examples have none: leave it "
                "out, or split the data."
            )
        with strategy.scope():
            actions.append(EarlyStopping(model, **config.early_stopping.model_dump()))
    return actions


def _run_dir(fn_args: Any) -> str:
    return getattr(fn_args, "model_run_dir", None) or os.path.join(
        os.path.dirname(fn_args.serving_model_dir.rstrip("/")), "model_run"
    )


def _fingerprint(config: TrainerConfig, train: Examples, summary: DataSummary) -> str:
    """Returns a digest of all that decides where a run ends: settings, features, rows."""
    settings = config.model_dump(mode="json", exclude=_NOT_IN_FINGERPRINT)
    features = {name: [list(f.shape), f.dtype.name] for name, f in train.feature_spec.items()}
    sizes = [tf.io.gfile.stat(file).length for file in train.files]
    facts = [settings, features, sizes, [summary.rows, summary.label_min, summary.label_max]]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
