"""Build the objects of a training: model, step, evaluation, callbacks, checkpoints."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import keras

from trainer_module.baselines.linear_start import set_linear_weights
from trainer_module.common.json_values import Json
from trainer_module.data.dataset_fingerprint import files_identity
from trainer_module.data.input_pipeline import Examples
from trainer_module.devices.multi_worker import is_multi_worker
from trainer_module.loop.callbacks import (
    Callback,
    EarlyStopping,
    ProfileSteps,
    Prune,
    TensorBoardScalars,
)
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.run_folder import run_folder
from trainer_module.losses.weighted_loss import LossFunction
from trainer_module.model.metrics import InOwnUnit
from trainer_module.model.model_context import inputs_of
from trainer_module.model.pruned_dense import PrunedDense
from trainer_module.parameter_server.parameter_server_step import ParameterServerStep
from trainer_module.step.reports import Step
from trainer_module.step.train_step import TrainStep
from trainer_module.step.window_loop import replicas_here
from trainer_module.training.label_scales import check_label_scale
from trainer_module.training.prepare import Prepared
from trainer_module.training.run_fingerprint import run_fingerprint
from trainer_module.tuning.auto_learning_rate import with_learning_rate


class Built(NamedTuple):
    """The objects of a training.

    Attributes:
        model: The model with its initial weights.
        inputs: The transformed features that the model takes.
        examples: The training rows with only these features.
        step: Takes the optimizer steps.
        evaluate: Evaluates the eval split; None if there is none.
        callbacks: The configured callbacks, without the progress.
        checkpoints: Checkpoints of this run; None if nothing is written.
    """

    model: keras.Model
    inputs: list[str]
    examples: Examples
    step: Step
    evaluate: Evaluation | None
    callbacks: list[Callback]
    checkpoints: Checkpoints | None


def build(prepared: Prepared) -> Built:
    """Build the objects, create the run's folder and measure "auto" settings."""
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
    if config.optimizer.learning_rate == "auto":
        optimizer = _optimizer_of_measured_rate(prepared, model, examples, folder)
    step = _step(prepared, model, optimizer, loss_fn)
    return Built(
        model=model,
        inputs=inputs,
        examples=examples,
        step=step,
        evaluate=_evaluation(prepared, model, loss_fn, examples, metrics),
        callbacks=_callbacks(prepared, model),
        checkpoints=_checkpoints(prepared, folder, step),
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


def _optimizer_of_measured_rate(
    prepared: Prepared, model: keras.Model, examples: Examples, folder: str | None
) -> keras.optimizers.Optimizer:
    plan = with_learning_rate(
        prepared.plan,
        model,
        examples,
        prepared.strategy,
        micro_batch_size=prepared.micro_batch_size,
        shuffle_buffer_rows=prepared.shuffle_buffer_rows,
        record_dir=folder,
        run_dir=prepared.folders.run,
    )
    with prepared.strategy.scope():
        return plan.create_optimizer(prepared.length.total_steps)


def _step(
    prepared: Prepared,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss_fn: LossFunction,
) -> Step:
    options: dict[str, Json] = {
        "micro_batch_size": prepared.micro_batch_size,
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
    held_out = dataclasses.replace(examples, files=files)
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
    if prepared.folders.run is not None and config.profile_steps is not None:
        # On all workers, which have to take the same steps; the chief writes.
        callbacks.append(ProfileSteps(prepared.folders.run, *config.profile_steps))
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


def _checkpoints(prepared: Prepared, folder: str | None, step: Step) -> Checkpoints | None:
    if folder is None:
        return None
    config = prepared.config
    return Checkpoints(
        folder,
        step,
        every_steps=config.checkpoint_every_steps,
        every_minutes=config.checkpoint_every_minutes,
    )
