"""A dense layer whose smallest weights are removed during the training."""

import keras
import numpy as np

from trainer_module import Prune, PrunedDense, TrainingLoop, TrainStep

x, y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")
pruned = PrunedDense(16, sparsity=0.75, begin_step=0, end_step=8, every=2, activation="relu")
model = keras.Sequential([keras.Input((8,)), pruned, keras.layers.Dense(1)])
step = TrainStep(model, keras.optimizers.Adam(0.01), "mse", micro_batch_size=16)
TrainingLoop(step, (x, y), batch_size=32, epochs=5, callbacks=[Prune(model)]).fit()
print(f"{np.mean(pruned.mask == 0):.0%} of the kernel is 0")  # 75% of the kernel is 0
