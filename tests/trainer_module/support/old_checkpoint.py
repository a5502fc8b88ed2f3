"""The program that wrote the checkpoint of version 0.1 in `loop/checkpoint_0_1`.

python tests/trainer_module/support/old_checkpoint.py FOLDER     # writes one with the code as it is
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from trainer_module import TrainingLoop, TrainStep
from trainer_module.loop.callbacks import CsvLog, EarlyStopping
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation

EPOCHS = 2


def build(folder: Path | str, *, epochs: int = EPOCHS, clip_norm: float = 1.5) -> TrainingLoop:
    """Builds a loop whose options are all in the fingerprint; 20 rows, batches of 6."""
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(3)
    rows = random.normal(size=(20, 3)).astype(np.float32)
    labels = rows.sum(axis=1, keepdims=True)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    step = TrainStep(
        model,
        keras.optimizers.Adam(0.05),
        "mse",
        micro_batch_size=2,
        clip_norm=clip_norm,
        ema_momentum=0.9,
        non_finite="skip",
        max_consecutive_skips=7,
    )
    held_out = tf.data.Dataset.from_tensor_slices((rows[:8], labels[:8])).batch(4)
    return TrainingLoop(
        step,
        (rows, labels),
        batch_size=6,
        shuffle=True,
        seed=5,
        epochs=epochs,
        steps_per_epoch=3,
        evaluate=Evaluation(model, "mse", held_out, metrics=[keras.metrics.MeanAbsoluteError()]),
        actions=[
            EarlyStopping(model, patience_epochs=9),
            CsvLog(str(Path(folder).parent / "epochs.csv")),
        ],
        checkpoints=Checkpoints(str(folder), step, facts={"dataset": "v1"}, every_steps=2),
        progress=False,
    )


if __name__ == "__main__":
    build(sys.argv[1]).fit()
