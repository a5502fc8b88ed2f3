"""A configuration and data -> a trained model: what `run_fn` and each trial of a search do."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from trainer_module.baselines.linear_start import (
    find_linear_start,
    has_linear_start,
    set_linear_weights,
)
from trainer_module.common.code_fingerprint import code_digests
from trainer_module.config import DEFAULT_EPOCHS, TrainerConfig
from trainer_module.data.input_pipeline import DataSummary, Examples
from trainer_module.data.label_scale import LabelScale, find_label_scale, has_logarithm
from trainer_module.devices.multi_worker import is_multi_worker, worker_group
from trainer_module.loop.callbacks import (
    Callback,
    EarlyStopping,
    FitResult,
    ProgressLog,
    TensorBoardScalars,
)
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.run_folder import files_identity, run_folder
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.memory.micro_batch_rows import micro_batch_rows
from trainer_module.model.class_weights import find_class_weights
from trainer_module.model.data_context import TransformedData, model_context
from trainer_module.model.metrics import InOwnUnit
from trainer_module.model.model_context import ModelContext
from trainer_module.model.model_inputs import inputs_of
from trainer_module.model.plan import Plan
from trainer_module.parameter_server.parameter_server_step import ParameterServerStep
from trainer_module.step.split import replicas_here
from trainer_module.step.train_step import TrainStep
from trainer_module.tuning.auto_learning_rate import with_learning_rate


class Trained(NamedTuple):
    """A training that ended.

    Attributes:
        result: Of its loop.
        model: What was trained; its outputs are on the label's scale.
        inputs: The transformed features that it takes.
        label_scale: What the label was brought to; None for none.
    """

    result: FitResult
    model: keras.Model
    inputs: list[str]
    label_scale: LabelScale | None


def train(
    plan: Plan,
    data: TransformedData,
    summary: DataSummary,
    strategy: tf.distribute.Strategy,
    *,
    run_dir: str | None = None,
    record_dir: str | None = None,
    train_steps: int | None = None,
    progress: Callback | None = None,
) -> Trained:
    """Trains as planned, within `keras_set_up(plan.config)`.

    Args:
        plan: How: what `resolve` returned.
        data: On what.
        summary: Of its training rows.
        strategy: Where.
        run_dir: Folder for checkpoints and TensorBoard; None for neither. Of several workers the
            chief alone writes, and the others read the checkpoints.
        record_dir: Folder that keeps the micro-batch size that "auto" finds; None: that of the
            checkpoints.
        train_steps: TFX's number of steps, where the configuration gives none.
        progress: Tells how it goes; None for a `ProgressLog`.

    Raises:
        ValueError: A setting does not fit the data.
        NonFiniteError: See `run_fn`.
        Disagreement: Workers have other settings, code or data.
    """
    config = plan.config
    workers = worker_group(strategy)
    servers = strategy if isinstance(strategy, tf.distribute.ParameterServerStrategy) else None
    if servers is not None:
        check_for_servers(config)
        strategy = tf.distribute.get_strategy()  # all that the chief itself computes
    if workers.size > 1:
        workers.assert_same_on_all_workers(
            "settings, code and data", _facts(config, data.train, summary)
        )
    context = model_context(config, data, summary)
    class_weight = find_class_weights(context, data, summary)
    if class_weight != config.class_weight:
        config = config.model_copy(update={"class_weight": class_weight})
        context = dataclasses.replace(context, config=config)
        plan = dataclasses.replace(plan, config=config)
    plan = plan.of_label(context.label_kind)
    epochs, steps = _length(config, train_steps)
    steps_per_epoch = math.ceil(summary.rows / config.global_batch_size)
    total_steps = steps if steps is not None else (epochs or 1) * steps_per_epoch
    checkpoint_dir = None
    if run_dir is not None:
        checkpoint_dir = config.checkpoint_dir or os.path.join(run_dir, "checkpoints")
    micro_batch = micro_batch_rows(
        plan,
        context,
        data.train,
        total_steps,
        strategy,
        run_dir=run_dir,
        record_dir=record_dir or checkpoint_dir,
    )
    scales = _label_scales(context, summary)
    start = find_linear_start(context, data.train, summary.rows, scales, workers)
    scale = scales[start.scale if start is not None else 0]
    with strategy.scope():
        model, optimizer, loss_fn = plan.build(context, total_steps)
        metrics = plan.create_metrics()
        _check_label_scale(config, scale, outputs=len(getattr(model, "outputs", None) or [0]))
        if scale is not None:
            metrics = [InOwnUnit(metric, scale) for metric in metrics]
    if start is not None and start.linear is not None:
        set_linear_weights(model, context, start.linear)
    # What the model does not take is not read: files may hold many more features.
    inputs = inputs_of(model, context)
    examples = dataclasses.replace(
        data.train.narrowed(inputs),
        label_scale=scale,
        replicas=replicas_here(strategy) if is_multi_worker(strategy) else None,
    )
    run_record = None
    if checkpoint_dir is not None:
        facts = _facts(config, examples, summary)
        if start is not None and scale is not None:
            facts["label_scale"] = scale.name  # another machine may round a close choice otherwise
        run_record = run_folder(checkpoint_dir, facts, makes=workers.is_chief)
    shuffle_buffer_rows = min(config.shuffle_buffer_rows, summary.rows)
    if config.optimizer.learning_rate == "auto":
        plan = with_learning_rate(
            plan,
            model,
            examples,
            strategy,
            micro_batch_size=micro_batch,
            shuffle_buffer_rows=shuffle_buffer_rows,
            record_dir=run_record,
            run_dir=run_dir,
        )
        with strategy.scope():
            optimizer = plan.create_optimizer(total_steps)
    options: dict[str, Any] = {"micro_batch_size": micro_batch, **plan.step_options}
    if servers is None:
        options |= {"strategy": strategy, "expected_rows": config.global_batch_size}
        step = TrainStep(model, optimizer, loss_fn, **options)
    else:
        step = ParameterServerStep(model, optimizer, loss_fn, cluster=servers, **options)
    evaluate = None
    if data.eval_files:
        held_out = dataclasses.replace(examples, files=data.eval_files)
        rows = micro_batch * strategy.num_replicas_in_sync
        evaluate = Evaluation(
            model,
            loss_fn,
            held_out.batches(rows),
            metrics=metrics,
            strategy=strategy,
            # How the rows are cut into batches and over workers says nothing of the run.
            data_facts={"files": files_identity(data.eval_files)},
        )
    scalars_dir = run_dir if config.tensorboard and workers.is_chief else None
    callbacks = [
        progress or ProgressLog(),
        *_callbacks(config, model, scalars_dir, strategy, has_eval=evaluate is not None),
    ]
    checkpoints = None
    if run_record is not None:
        checkpoints = Checkpoints(
            run_record,
            step,
            keep=config.keep_checkpoints,
            every_steps=config.checkpoint_every_steps,
            every_minutes=config.checkpoint_every_minutes,
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
        examples.shuffled_batches(
            config.global_batch_size,
            shuffle_buffer_rows=shuffle_buffer_rows,
            seed=config.seed,
        ),
        epochs=epochs,
        steps=steps,
        steps_per_epoch=steps_per_epoch,
        steps_per_loop=config.steps_per_loop,
        evaluate=evaluate,
        callbacks=callbacks,
        checkpoints=checkpoints,
    ).fit()
    return Trained(result, model, inputs, scale)


def _label_scales(context: ModelContext, summary: DataSummary) -> list[LabelScale | None]:
    """Return the scale that a regression is trained on; two if a linear model decides."""
    config = context.config
    if context.label_kind != "regression":
        if config.label_scale in ("z_score", "log"):
            raise ValueError(
                f"trainer.label_scale={config.label_scale!r}: trainer.label={context.label!r} is "
                f"{context.label_kind}, which has no scale; leave it out."
            )
        return [None]

    def find(wanted: Any) -> LabelScale | None:
        return find_label_scale(
            wanted,
            summary.label_moments,
            loss=config.loss,
            own_model=config.model_fn is not None,
            whole=summary.label_is_whole,
            label=context.label,
        )

    scale = find(config.label_scale)
    if scale is None or config.label_scale != "auto" or not has_linear_start(context):
        return [scale]
    if not has_logarithm(summary.label_moments, whole=summary.label_is_whole):
        return [scale]
    return [find("z_score"), find("log")]


def _check_label_scale(config: TrainerConfig, scale: LabelScale | None, *, outputs: int) -> None:
    """Raise ValueError for a model whose outputs have no scale; log the scale."""
    if scale is None:
        return
    if outputs > 1:
        raise ValueError(
            f"trainer.label_scale={config.label_scale!r}: trainer.model_fn={config.model_fn!r} "
            f"returned a model with {outputs} outputs, and the scale is of one; leave it out."
        )
    logging.info(
        "The label is trained as %s; metrics and predictions are in its own unit.",
        "z-score" if scale.name == "z_score" else "z-score of its logarithm",
    )


def check_for_servers(config: TrainerConfig) -> None:
    """Raises ValueError for a setting that has no meaning with parameter servers."""
    if config.micro_batch_size == "auto":
        raise ValueError(
            'trainer.micro_batch_size="auto" measures the devices of this process, and with '
            "trainer.strategy='parameter_server' workers take the windows: give a number of rows."
        )


def check_rows(config: TrainerConfig, summary: DataSummary) -> None:
    """Raises ValueError for a global batch that the training data cannot fill."""
    if config.global_batch_size > summary.rows:
        raise ValueError(
            f"trainer.global_batch_size={config.global_batch_size} exceeds the {summary.rows} "
            f"training rows: use {summary.rows} or less."
        )


@contextlib.contextmanager
def keras_set_up(config: TrainerConfig) -> Iterator[None]:
    """Keras with the configured precision, and its random numbers from the configured seed."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(config.precision)
    keras.utils.set_random_seed(config.seed)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)


def _length(config: TrainerConfig, train_steps: int | None) -> tuple[int | None, int | None]:
    if config.epochs is not None or config.steps is not None:
        return config.epochs, config.steps
    if train_steps is not None and train_steps > 0:
        return None, train_steps
    return DEFAULT_EPOCHS, None


def _callbacks(
    config: TrainerConfig,
    model: keras.Model,
    scalars_dir: str | None,
    strategy: tf.distribute.Strategy,
    *,
    has_eval: bool,
) -> list[Callback]:
    callbacks: list[Callback] = []
    if scalars_dir is not None:
        callbacks.append(TensorBoardScalars(scalars_dir))
    if config.early_stopping is not None:
        if not has_eval:
            raise ValueError(
                "trainer.early_stopping needs an eval split, and the examples have none: leave it "
                "out, or split the data."
            )
        with strategy.scope():
            callbacks.append(EarlyStopping(model, **config.early_stopping.model_dump()))
    return callbacks


def _facts(config: TrainerConfig, examples: Examples, summary: DataSummary) -> dict[str, Any]:
    """Returns all that decides where a run ends but its length: settings, code, features, rows."""
    paths = [config.model_fn, config.loss, *(config.metrics or ())]
    modules = {path.rpartition(".")[0] for path in paths if path and "." in path}
    return {
        "trainer": config.fingerprint(),
        "code": code_digests(modules, without=["keras", "tensorflow", "trainer_module"]),
        "features": {
            name: f"{f.dtype.name}{list(f.shape)}" for name, f in examples.feature_spec.items()
        },
        "files": files_identity(examples.files),
        "rows": summary.rows,
    }
