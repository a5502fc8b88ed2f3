"""Collect what is known about a training before its model is built."""

from __future__ import annotations

import dataclasses
import os
from typing import Literal, NamedTuple

import tensorflow as tf
from absl import logging

from trainer_module.baselines.linear_start import LinearStart, find_linear_start, has_linear_start
from trainer_module.common.code_fingerprint import code_digests
from trainer_module.common.tensors import Json
from trainer_module.config import DEFAULT_EPOCHS, TrainerConfig
from trainer_module.data.dataset_steps import files_identity
from trainer_module.data.input_pipeline import DataSummary, Examples
from trainer_module.data.label_scale import LabelScale, find_label_scale, has_logarithm
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.memory.micro_batch_size import micro_batch_rows
from trainer_module.model.data_context import TransformedData, find_class_weights, model_context
from trainer_module.model.model_context import ModelContext
from trainer_module.model.plan import Plan


class Folders(NamedTuple):
    """The folders that a training writes to; only the chief writes, other workers read."""

    run: str | None = None  # checkpoints and TensorBoard; None: write neither
    record: str | None = None  # keeps the micro-batch size of "auto"; None: beside checkpoints

    def checkpoints(self, config: TrainerConfig) -> str | None:
        """Return the parent folder of the runs' checkpoint folders."""
        if self.run is None:
            return None
        return config.checkpoint_dir or os.path.join(self.run, "checkpoints")


class _RunLength(NamedTuple):
    """Length of a training: epochs or steps, and the resulting number of steps.

    Epochs have the same number of steps, `steps_per_epoch`, unless the batch size changes (None).
    """

    epochs: int | None
    steps: int | None
    steps_per_epoch: int | None
    total_steps: int


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What is known about a training before its model is built."""

    plan: Plan  # for the label's kind, with class weights
    context: ModelContext
    data: TransformedData
    summary: DataSummary  # of the training rows
    strategy: tf.distribute.Strategy  # with parameter servers, that of this process alone
    servers: tf.distribute.ParameterServerStrategy | None
    workers: WorkerGroup
    folders: Folders
    length: _RunLength
    micro_batch_size: int  # rows on one replica
    start: LinearStart | None  # initial weights; None: random ones
    label_scale: LabelScale | None  # of a regression; None: the label's own unit

    @property
    def config(self) -> TrainerConfig:
        """The settings."""
        return self.plan.config

    @property
    def shuffle_buffer_rows(self) -> int:
        """Rows of the shuffle buffer, at most the number of training rows."""
        return min(self.config.shuffle_buffer_rows, self.summary.rows)


def prepare(
    plan: Plan,
    data: TransformedData,
    summary: DataSummary,
    strategy: tf.distribute.Strategy,
    *,
    folders: Folders | None = None,
    train_steps: int | None = None,
) -> Prepared:
    """Return what is known before the model is built. See `train` for the arguments."""
    folders = folders or Folders()
    workers = worker_group(strategy)
    servers = strategy if isinstance(strategy, tf.distribute.ParameterServerStrategy) else None
    if servers is not None:
        if plan.config.micro_batch_size == "auto":
            raise ValueError(
                'trainer.micro_batch_size="auto" measures the devices of this process, and with '
                "trainer.strategy='parameter_server' workers take the windows: give a number of "
                "rows."
            )
        strategy = tf.distribute.get_strategy()  # for what the chief computes locally
    run = run_fingerprint(plan.config, data.train, summary)
    if workers.size > 1:
        workers.assert_same_on_all_workers("settings, code and data", run)
    plan, context = _plan_for_data(plan, data, summary)
    if plan.config.early_stopping is not None and not data.eval_files:
        raise ValueError(
            "trainer.early_stopping needs an eval split, and the examples have none: leave it "
            "out, or split the data."
        )
    length = _length(plan.config, train_steps, summary.rows)
    micro_batch = micro_batch_rows(
        plan,
        context,
        data.train.for_training(),
        length.total_steps,
        strategy,
        run=run,
        record_dir=folders.record or folders.checkpoints(plan.config),
    )
    scales = _label_scales(context, summary)
    start = find_linear_start(context, data.train, summary.rows, scales, workers)
    return Prepared(
        plan=plan,
        context=context,
        data=data,
        summary=summary,
        strategy=strategy,
        servers=servers,
        workers=workers,
        folders=folders,
        length=length,
        micro_batch_size=micro_batch,
        start=start,
        label_scale=scales[start.scale if start is not None else 0],
    )


def _plan_for_data(
    plan: Plan, data: TransformedData, summary: DataSummary
) -> tuple[Plan, ModelContext]:
    """Return the plan with class weights and the defaults of the label's kind."""
    context = model_context(plan.config, data, summary)
    class_weight = find_class_weights(context, data, summary)
    if class_weight != plan.config.class_weight:
        config = plan.config.model_copy(update={"class_weight": class_weight})
        context = dataclasses.replace(context, config=config)
        plan = dataclasses.replace(plan, config=config)
    return plan.of_label(context.label_kind), context


def _length(config: TrainerConfig, train_steps: int | None, rows: int) -> _RunLength:
    epochs, steps = config.epochs, config.steps
    if epochs is None and steps is None:
        has_steps = train_steps is not None and train_steps > 0
        epochs, steps = (None, train_steps) if has_steps else (DEFAULT_EPOCHS, None)
    sizes = config.batch_sizes
    steps_per_epoch = sizes.steps_of_passes(rows, 0, 1) if sizes.is_single else None
    total_steps = steps if steps is not None else sizes.steps_of_passes(rows, 0, epochs or 1)
    if sizes.steps[-1] >= total_steps:
        logging.warning(
            "global_batch_size=%s: the training has %d steps and does not reach all sizes.",
            config.global_batch_size,
            total_steps,
        )
    return _RunLength(epochs, steps, steps_per_epoch, total_steps)


def check_rows(config: TrainerConfig, summary: DataSummary) -> None:
    """Raise ValueError for a global batch that the training data cannot fill."""
    largest = config.batch_sizes.largest
    if largest > summary.rows:
        raise ValueError(
            f"trainer.global_batch_size={largest} exceeds the {summary.rows} "
            f"training rows: use {summary.rows} or less."
        )


def _label_scales(context: ModelContext, summary: DataSummary) -> list[LabelScale | None]:
    """Return the candidate scales of a regression's label; two if a linear model decides."""
    config = context.config
    if context.label_kind != "regression":
        if config.label_scale in ("z_score", "log"):
            raise ValueError(
                f"trainer.label_scale={config.label_scale!r}: trainer.label={context.label!r} is "
                f"{context.label_kind}, which has no scale; leave it out."
            )
        return [None]

    def find(wanted: Literal["auto", "none", "z_score", "log"]) -> LabelScale | None:
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


def check_label_scale(config: TrainerConfig, scale: LabelScale | None, *, outputs: int) -> None:
    """Raise ValueError if the model's number of outputs does not allow a scale; log the scale."""
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


def run_fingerprint(
    config: TrainerConfig, examples: Examples, summary: DataSummary
) -> dict[str, Json]:
    """Return what affects the run's result, except its length: settings, code, features, rows."""
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
