"""Sums of gradients over micro-batches, and their division by the weights of all rows."""

import keras
import tensorflow as tf

from trainer_module import accumulate_gradients, apply_gradients, mean_gradients

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.1)
optimizer.build(model.trainable_variables)


@tf.function
def train_step(x, y):
    total = accumulate_gradients(model, "mse", x, y, micro_batch_size=32)
    loss, gradients = mean_gradients(total, model)
    apply_gradients(optimizer, gradients, model.trainable_variables)
    return loss


print(float(train_step(tf.ones([100, 4]), tf.ones([100, 1]))))
