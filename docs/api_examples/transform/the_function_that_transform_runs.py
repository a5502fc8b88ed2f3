"""For TFX's Transform, or `ParquetTransform`: its dotted path, and a specification."""

import tensorflow as tf

from transform import preprocessing_fn

spec = {"groups": [{"name": "words", "columns": ["color"], "encode": {"hash": {"buckets": 8}}}]}

with tf.Graph().as_default():  # Transform calls it in a graph, too
    color = tf.compat.v1.placeholder(tf.string, [None])
    features = preprocessing_fn({"color": color}, {"features": spec})

print(sorted(features))  # ['packed_int', 'packed_missing']
