"""Gradients that are not of a mean loss, in memory that does not grow with the rows."""

import keras
import tensorflow as tf

from trainer_module import input_gradients, per_example_gradients

x, y = tf.ones([10, 4]), tf.ones([10, 1])
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
norms = per_example_gradients(model, "mse", x, y, reduce=tf.linalg.global_norm)
slopes = input_gradients(model, x)
print(norms.shape, slopes.shape)  # (10,) (10, 4)
