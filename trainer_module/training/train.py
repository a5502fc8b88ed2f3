"""Train a model from a plan and data: prepare, build, and run the loop."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import tensorflow as tf
from absl import logging

from trainer_module.baselines.linear_start import set_linear_weights
from trainer_module.common.tensors import Json, LossFunction
from trainer_module.config import TrainerConfig
from trainer_module.data.dataset_steps import files_identity
from trainer_module.data.input_pipeline import DataSummary, Examples
from trainer_module.data.label_scale import LabelScale
from trainer_module.devices.replicas import is_multi_worker, replicas_here
from trainer_module.loop.callback import Callback, FitResult
from trainer_module.loop.callbacks import EarlyStopping, Prune, TensorBoardScalars
from trainer_module.loop.checkpoint_folder import run_folder
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.progress_log import ProgressLog
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.model.data_context import TransformedData
from trainer_module.model.layers import PrunedDense
from trainer_module.model.metrics import InOwnUnit
from trainer_module.model.model_context import inputs_of
from trainer_module.model.plan import Plan
from trainer_module.parameter_server.parameter_server_step import ParameterServerStep
from trainer_module.step.reports import Step
from trainer_module.step.train_step import TrainStep
from trainer_module.training.prepare import (
    Folders,
    Prepared,
    check_label_scale,
    prepare,
    run_fingerprint,
)


class Trained(NamedTuple):
    """A completed training."""

    result: FitResult
    model: keras.Model  # its outputs are on the label's scale
    inputs: list[str]  # the transformed features that the model takes
    label_scale: LabelScale | None  # None: the label's own unit


def train(
    plan: Plan,
    data: TransformedData,
    summary: DataSummary,
    strategy: tf.distribute.Strategy,
    *,
    folders: Folders | None = None,
    train_steps: int | None = None,
    progress: Callback | None = None,
    check_model: Callable[[keras.Model], None] | None = None,
) -> Trained:
    """Train a plan; call it within `keras_set_up(plan.config)`.

    Args:
        plan: The result of `resolve`.
        data: The transformed rows.
        summary: Summary of the training rows.
        strategy: Strategy to train with.
        folders: Folders to write to; None: write nothing.
        train_steps: TFX's number of steps, used if the configuration sets none.
        progress: Shows the progress; None: a `ProgressLog`.
        check_model: Called with the model before the first step, to reject it.

    Raises:
        ValueError: A setting does not fit the data.
        NonFiniteError: See `run_fn`.
        Disagreement: Workers differ in settings, code or data.
    """
    prepared = prepare(plan, data, summary, strategy, folders=folders, train_steps=train_steps)
    built = build(prepared)
    if check_model is not None:
        check_model(built.model)
    config, length = prepared.config, prepared.length
    # A linear start is a candidate for the best weights: a table may have nothing more to learn.
    stopping = [each for each in built.callbacks if isinstance(each, EarlyStopping)]
    if prepared.start is not None and prepared.start.linear is not None and stopping:
        assert built.evaluate is not None
        start = prepared.workers.broadcast_from_chief("evaluation", built.evaluate())
        stopping[0].keep_start(start)
    logging.info(
        "Training on %s rows: %d steps of %s, on %d replica(s) in micro-batches of %d rows",
        f"{prepared.summary.rows:,}",
        length.total_steps,
        config.batch_sizes,
        prepared.strategy.num_replicas_in_sync,
        prepared.micro_batch_size,
    )
    result = TrainingLoop(
        built.step,
        built.examples.shuffled_batches(
            config.global_batch_size,
            shuffle_buffer_rows=prepared.shuffle_buffer_rows,
            seed=config.seed,
            rows=prepared.summary.rows,
        ),
        epochs=length.epochs,
        steps=length.steps,
        steps_per_epoch=length.steps_per_epoch,
        steps_per_loop=config.steps_per_loop,
        evaluate=built.evaluate,
        callbacks=[progress or ProgressLog(), *built.callbacks],
        checkpoints=built.checkpoints,
    ).fit()
    return Trained(result, built.model, built.inputs, prepared.label_scale)


@contextlib.contextmanager
def keras_set_up(config: TrainerConfig) -> Iterator[None]:
    """Set Keras' precision and random seed from the configuration within the block."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(config.precision)
    keras.utils.set_random_seed(config.seed)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)


class _Built(NamedTuple):
    """The objects of a training; without an eval split, or folders, some are None."""

    model: keras.Model
    inputs: list[str]
    examples: Examples
    step: Step
    evaluate: Evaluation | None
    callbacks: list[Callback]
    checkpoints: Checkpoints | None


def build(prepared: Prepared) -> _Built:
    """Build the objects, and create the run's folder."""
    plan, config, strategy = prepared.plan, prepared.config, prepared.strategy
    scale = prepared.label_scale
    with strategy.scope():
        model, optimizer, loss_fn = plan.build(prepared.context, prepared.length.total_steps)
        metrics = plan.create_metrics()
        check_label_scale(config, scale, outputs=len(getattr(model, "outputs", None) or [0]))
        if scale is not None:
            metrics = [InOwnUnit(metric, scale) for metric in metrics]
    if prepared.start is not None and prepared.start.linear is not None:
        set_linear_weights(model, prepared.context, prepared.start.linear)
    # Read only the features that the model takes: files may have many more.
    inputs = inputs_of(model, prepared.context)
    examples = dataclasses.replace(
        prepared.data.train.narrowed(inputs).for_training(scale),
        replicas=replicas_here(strategy) if is_multi_worker(strategy) else None,
    )
    folder = _run_folder(prepared, examples)
    step = _step(prepared, model, optimizer, loss_fn, tuple(examples.token_features))
    checkpoints = None
    if folder is not None:
        steps, minutes = config.checkpoint_every_steps, config.checkpoint_every_minutes
        checkpoints = Checkpoints(folder, step, every_steps=steps, every_minutes=minutes)
    return _Built(
        model=model,
        inputs=inputs,
        examples=examples,
        step=step,
        evaluate=_evaluation(prepared, model, loss_fn, examples, metrics),
        callbacks=_callbacks(prepared, model),
        checkpoints=checkpoints,
    )


def _run_folder(prepared: Prepared, examples: Examples) -> str | None:
    parent = prepared.folders.checkpoints(prepared.config)
    if parent is None:
        return None
    fingerprint = run_fingerprint(prepared.config, examples, prepared.summary)
    if prepared.start is not None and prepared.label_scale is not None:
        # Another machine may round differently and so decide a close choice differently.
        fingerprint["label_scale"] = prepared.label_scale.name
    layout = prepared.context.layout
    shared = {c.name: c.shared_ids for c in (layout.columns if layout else ()) if c.shared_ids}
    if shared:  # the same rows give a model of another shape
        fingerprint["shared_ids"] = shared
    return run_folder(parent, fingerprint, makes=prepared.workers.is_chief)


def _step(
    prepared: Prepared,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss_fn: LossFunction,
    token_features: tuple[str, ...],
) -> Step:
    options: dict[str, Json] = {
        "micro_batch_size": prepared.micro_batch_size,
        "token_features": token_features,
        **prepared.plan.step_options,
    }
    if prepared.servers is not None:
        return ParameterServerStep(model, optimizer, loss_fn, cluster=prepared.servers, **options)
    return TrainStep(
        model,
        optimizer,
        loss_fn,
        strategy=prepared.strategy,
        # The graph also gets a branch for small windows if only the smallest is one pass.
        expected_rows=prepared.config.batch_sizes.smallest,
        **options,
    )


def _evaluation(
    prepared: Prepared,
    model: keras.Model,
    loss_fn: LossFunction,
    examples: Examples,
    metrics: list[keras.metrics.Metric],
) -> Evaluation | None:
    files = prepared.data.eval_files
    if not files:
        return None
    held_out = dataclasses.replace(examples, files=files, trims=True)
    rows = prepared.micro_batch_size * prepared.strategy.num_replicas_in_sync
    return Evaluation(
        model,
        loss_fn,
        held_out.batches(rows),
        metrics=metrics,
        strategy=prepared.strategy,
        # The run's identity does not depend on the split of rows into batches and workers.
        data_facts={"files": files_identity(files)},
    )


def _callbacks(prepared: Prepared, model: keras.Model) -> list[Callback]:
    config, callbacks = prepared.config, list[Callback]()
    if prepared.folders.run is not None and config.tensorboard and prepared.workers.is_chief:
        callbacks.append(TensorBoardScalars(prepared.folders.run))
    sparse_from = 0
    pruned = [each for each in model._flatten_layers() if isinstance(each, PrunedDense)]
    if pruned:
        callbacks.append(Prune(model))
        end_step = max(each.end_step for each in pruned)
        sparse_from = min(end_step, prepared.length.total_steps)
    if config.early_stopping is not None:
        options = config.early_stopping.model_dump()
        with prepared.strategy.scope():
            callbacks.append(EarlyStopping(model, **options, from_step=sparse_from))
    return callbacks
