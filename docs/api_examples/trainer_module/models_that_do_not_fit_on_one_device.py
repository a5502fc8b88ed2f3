"""Activations that are computed twice instead of stored, and layers on several devices."""

import keras

from trainer_module import TrainStep, recompute

block = recompute(keras.layers.Dense(64, activation="relu"))  # keeps only its inputs
model = keras.Sequential([keras.Input((4,)), block, keras.layers.Dense(1)])
step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=32)
