"""A `TrainingLoop` calls them between the calls of the graph. Keras' callbacks work, too."""

import keras
import numpy as np

from trainer_module import Callback, TrainingLoop, TrainStep


class StopAtLoss(Callback):
    def on_loop(self, progress):
        return progress.loss < 0.01  # True stops the training


x, y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=32)
loop = TrainingLoop(step, (x, y), batch_size=64, epochs=50, callbacks=[StopAtLoss()])
print(loop.fit().stopped)  # early_stopping
