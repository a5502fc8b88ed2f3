"""A profile divides the wall time of a step into parts that add up."""

import keras
import numpy as np

from trainer_module import TrainStep, profile_step

x, y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=32)
print(profile_step(step, (x, y), batch_size=64, steps=5))
