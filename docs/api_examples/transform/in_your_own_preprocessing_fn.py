"""A `[batch]` vector of a column, whether it is stored dense or sparse."""

import tensorflow as tf

from transform import dense_numbers, dense_texts

print(dense_numbers(tf.constant([[1.0], [2.5]])).numpy())  # [1.  2.5]
print(dense_texts(tf.constant([["Oslo"], ["Bergen"]])).numpy())  # [b'Oslo' b'Bergen']
