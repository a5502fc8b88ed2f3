"""Two ways to train the same model for the same task: which arrives first at a given loss?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import polars
import tensorflow as tf

from trainer_module import TrainStep

BATCH_ROWS = 256
STEPS_PER_LOOK = 20
LOOKS = 50
# Everything in the taxi CSV that is a number and known before the tip.
COLUMNS = (
    "fare",
    "trip_miles",
    "trip_seconds",
    "pickup_latitude",
    "pickup_longitude",
    "dropoff_latitude",
    "dropoff_longitude",
    "pickup_community_area",
    "dropoff_community_area",
    "trip_start_hour",
    "trip_start_day",
    "trip_start_month",
)


class Rows(NamedTuple):
    """Features `[rows, columns]` and labels `[rows, 1]`, float32."""

    features: np.ndarray
    labels: np.ndarray


class Racer(NamedTuple):
    """One way to train.

    Attributes:
        train: To train on.
        held_out: Where the loss is looked at, prepared like `train`.
        optimizer: Returns a new one.
    """

    train: Rows
    held_out: Rows
    optimizer: Callable[[], keras.optimizers.Optimizer]


class Course(NamedTuple):
    """A racer's held-out loss, looked at every 20 optimizer steps.

    Attributes:
        losses: One per look.
        seconds: Spent in steps until each look; looking is not counted.
    """

    losses: list[float]
    seconds: list[float]

    def arrival(self, loss: float) -> tuple[int, float]:
        """Returns steps and seconds until the loss was that small."""
        look = next(i for i, value in enumerate(self.losses) if value <= loss)
        return (look + 1) * STEPS_PER_LOOK, self.seconds[look]


def taxi_rows() -> tuple[Rows, Rows]:
    """Returns train and held-out rows of the CSV in the tfx wheel, missing values as means.

    The label is the taxi example's: the tip is more than 20 % of the fare.
    """
    import tfx

    path = Path(str(tfx.__file__)).parent / "examples/chicago_taxi_pipeline/data/simple/data.csv"
    table = polars.read_csv(path, infer_schema_length=None)
    labels = (table["tips"].fill_null(0.0) > 0.2 * table["fare"].fill_null(0.0)).to_numpy()
    columns = [table[name].cast(polars.Float64) for name in COLUMNS]
    features = np.stack([column.fill_null(column.mean()).to_numpy() for column in columns], axis=1)
    order = np.random.default_rng(0).permutation(len(features))
    held_out, train = order[: len(order) // 3], order[len(order) // 3 :]
    made = [
        Rows(features[part].astype(np.float32), labels[part, None].astype(np.float32))
        for part in (train, held_out)
    ]
    return made[0], made[1]


def normalised(train: Rows, held_out: Rows) -> tuple[Rows, Rows]:
    """Returns both with the training rows' mean 0 and standard deviation 1."""
    mean, deviation = train.features.mean(axis=0), train.features.std(axis=0)
    made = [Rows((rows.features - mean) / deviation, rows.labels) for rows in (train, held_out)]
    return made[0], made[1]


def race(racers: Mapping[str, Racer], *, seed: int, looks: int = LOOKS) -> dict[str, Course]:
    """Trains each from the same weights on the same order of rows, in turns of 20 steps."""
    runs = {name: _Run(racer, seed) for name, racer in racers.items()}
    for look in range(looks):
        for run in runs.values() if look % 2 == 0 else reversed(runs.values()):
            run.go()
    return {name: Course(run.losses, run.seconds) for name, run in runs.items()}


class _Run:
    def __init__(self, racer: Racer, seed: int) -> None:
        keras.utils.set_random_seed(seed)
        layers = keras.layers
        self.model = keras.Sequential(
            [
                keras.Input((racer.train.features.shape[1],)),
                layers.Dense(64, activation="relu"),
                layers.Dense(32, activation="relu"),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        self.step = TrainStep(
            self.model, racer.optimizer(), "binary_crossentropy", micro_batch_size=BATCH_ROWS
        )
        dataset = tf.data.Dataset.from_tensor_slices(tuple(racer.train))
        dataset = dataset.shuffle(len(racer.train.labels), seed=seed).repeat().batch(BATCH_ROWS)
        self.batches = iter(dataset.prefetch(tf.data.AUTOTUNE))
        # Neither compilation nor filling the shuffle buffer is a matter of the claim.
        next(self.batches)
        self.step.run(self.batches, 0)
        self.held_out = [tf.constant(array) for array in racer.held_out]
        self.look = tf.function(self._loss)
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def go(self) -> None:
        started = time.perf_counter()
        self.step.run(self.batches, STEPS_PER_LOOK)
        spent = time.perf_counter() - started
        self.seconds.append(spent + (self.seconds[-1] if self.seconds else 0.0))
        self.losses.append(float(self.look()))

    def _loss(self) -> tf.Tensor:
        features, labels = self.held_out
        loss = keras.losses.binary_crossentropy(labels, self.model(features, training=False))
        return tf.reduce_mean(loss)
