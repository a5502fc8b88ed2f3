"""A step is exact, a loop takes steps over epochs, an evaluation judges the model."""

import keras
import numpy as np
import tensorflow as tf

from trainer_module import Evaluation, TrainingLoop, TrainStep

x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
step = TrainStep(model, keras.optimizers.Adam(0.1), "mse", micro_batch_size=32)
held_out = tf.data.Dataset.from_tensor_slices((x, y)).batch(128)
evaluate = Evaluation(model, "mse", held_out, metrics=[keras.metrics.MeanAbsoluteError()])
result = TrainingLoop(step, (x, y), batch_size=128, epochs=5, evaluate=evaluate).fit()
print(result.history["val_mean_absolute_error"])
