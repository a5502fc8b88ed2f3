"""The same program trains on one device and on many: only the strategy changes."""

import keras

from trainer_module import TrainStep, create_strategy

strategy = create_strategy("auto")  # all GPUs; workers and servers of TF_CONFIG; else one device
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
step = TrainStep(model, optimizer, "mse", micro_batch_size=32, strategy=strategy)
