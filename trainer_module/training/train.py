"""Train a model from a plan and data: prepare, build, fit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import tensorflow as tf
from absl import logging

from trainer_module.config import TrainerConfig
from trainer_module.data.input_pipeline import DataSummary
from trainer_module.data.label_scale import LabelScale
from trainer_module.loop.callbacks import Callback, EarlyStopping, FitResult, ProgressLog
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.model.data_context import TransformedData
from trainer_module.model.plan import Plan
from trainer_module.training.build import Built, build
from trainer_module.training.prepare import Folders, Prepared, prepare


class Trained(NamedTuple):
    """A completed training.

    Attributes:
        result: Result of the loop.
        model: The trained model; its outputs are on the label's scale.
        inputs: The transformed features that the model takes.
        label_scale: Scale of the label in training; None: the label's own unit.
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
    result = fit(prepared, built, progress or ProgressLog())
    return Trained(result, built.model, built.inputs, prepared.label_scale)


def fit(prepared: Prepared, built: Built, progress: Callback) -> FitResult:
    """Train the built objects, from the latest checkpoint if there is one.

    A linear start is a candidate for the best weights: a table may have nothing more to learn.
    """
    config, length = prepared.config, prepared.length
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
    return TrainingLoop(
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
        callbacks=[progress, *built.callbacks],
        checkpoints=built.checkpoints,
    ).fit()


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
