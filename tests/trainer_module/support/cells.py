"""A cell of the exactness matrix: one value of each axis, trained twice."""

from __future__ import annotations

import dataclasses
from unittest import mock

import full_batch
import keras
import numpy as np
import tensorflow as tf

from trainer_module.step.train_step import TrainStep
from trainer_module.window import spec as passes

# Rows of consecutive windows, on up to three replicas.
ROWS = {
    "even": (12, 12),
    "ragged": (11, 7, 11),
    "fewer_than_replicas": (1, 11, 2),
    "short_last": (12, 12, 5),
}
OPTIMIZERS = {
    "sgd": lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
    "adam": keras.optimizers.Adam,
    "adamw": lambda rate: keras.optimizers.AdamW(rate, weight_decay=0.01),
    "lion": keras.optimizers.Lion,
}
WEIGHTS = ("none", "random", "some_zero", "all_zero")


@dataclasses.dataclass(frozen=True)
class Cell:
    """Values of the axes; `rows` is a key of ROWS, or the rows themselves.

    All models hold so little that `per_pass` micro-batches are taken together. With `expected_rows`
    of one pass, windows of one pass, of none and of several take different ways.
    """

    strategy: str
    kind: str
    optimizer: str
    micro_batch_size: int
    rows: str | tuple[int, ...]
    weights: str
    clip_norm: float | None = None
    ema_momentum: float | None = None
    jit_compile: bool = False
    schedule: bool = False
    reduction: str = "weighted_mean"
    precision: str = "float64"
    per_pass: int = 1
    expected_rows: int | None = None

    def __str__(self) -> str:
        rows = self.rows if isinstance(self.rows, str) else "x".join(map(str, self.rows))
        marks = [self.precision] if self.precision != "float64" else []
        marks += ["jit"] if self.jit_compile else []
        marks += [f"{self.per_pass}_per_pass"] if self.per_pass > 1 else []
        marks += [f"{self.expected_rows}_expected"] if self.expected_rows else []
        return "-".join([self.strategy, self.kind, rows, str(self.micro_batch_size), *marks])


def model_and_optimizer(cell: Cell):
    """Returns both, with the same initial weights in every precision, biases not 0."""
    rate = keras.optimizers.schedules.CosineDecay(0.05, 10) if cell.schedule else 0.05
    model = full_batch.MODELS[cell.kind]()
    random = np.random.default_rng(1)
    model.set_weights([random.normal(0, 0.4, w.shape).astype("float32") for w in model.weights])
    return model, OPTIMIZERS[cell.optimizer](rate)


def batches(cell: Cell):
    """Returns the windows; of "all_zero" the second has no weight at all."""
    made = []
    for seed, rows in enumerate(ROWS.get(cell.rows, cell.rows)):
        features, labels, weights = full_batch.batch(cell.kind, rows, seed)
        if cell.weights == "none":
            weights = None
        elif cell.weights == "random":
            weights = weights + np.asarray(0.1, weights.dtype)
        elif cell.weights == "all_zero" and seed == 1:
            weights = np.zeros_like(weights)
        made.append((features, labels, weights))
    return made


def weight_sum(cell: Cell, batch) -> float:
    """Returns what the window divides by."""
    features, labels, weights = batch
    if cell.kind == "tokens":
        counted = (features > 0).astype("float64")
    else:
        counted = np.ones(len(tf.nest.flatten(labels)[0]))
    if weights is not None and cell.reduction == "weighted_mean":
        counted = counted * weights
    if cell.kind == "own_loss":
        weights = np.ones(len(labels)) if weights is None else weights
        counted = weights * (1 + abs(labels[:, 0]))
    return float(counted.sum())


def trained(cell: Cell, strategy) -> TrainStep:
    """Returns a TrainStep after a step on each window."""
    with full_batch.precision(cell.precision):
        with strategy.scope():
            model, optimizer = model_and_optimizer(cell)
        step = TrainStep(
            model,
            optimizer,
            full_batch.loss_for(cell.kind, cell.reduction),
            micro_batch_size=cell.micro_batch_size,
            strategy=strategy,
            clip_norm=cell.clip_norm,
            ema_momentum=cell.ema_momentum,
            jit_compile=cell.jit_compile,
            expected_rows=cell.expected_rows,
        )
        if step.loss_scale is not None:
            step.loss_scale.scale.assign(64.0)  # below the overflow of these models
        limits = {
            kind: most._replace(micro_batches=cell.per_pass) for kind, most in passes.LIMITS.items()
        }
        with mock.patch.dict(passes.LIMITS, limits):
            for batch in batches(cell):
                step(batch)
    return step


def reference(cell: Cell, precision: str = "float64"):
    """Returns the initial weights, the weights and the averages of full-batch training."""
    with full_batch.precision(precision):
        model, optimizer = model_and_optimizer(cell)
        first = model.get_weights()
        weights, averages = full_batch.train(
            model,
            optimizer,
            cell.kind,
            [batch for batch in batches(cell) if weight_sum(cell, batch) > 0],
            clip_norm=cell.clip_norm,
            ema_momentum=cell.ema_momentum,
            reduction=cell.reduction,
        )
    return first, weights, averages
