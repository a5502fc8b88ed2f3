"""For TFX's Transform, or `ParquetTransform`: its dotted path, and a specification."""

import tensorflow as tf

from transform import preprocessing_fn

spec = {"groups": [{"name": "words", "columns": ["color"], "encode": {"hash": {"buckets": 8}}}]}


@tf.function(autograph=False)  # Transform calls it in a graph, too
def transform(color):
    return preprocessing_fn({"color": color}, {"features": spec})


print(sorted(transform(tf.constant(["red", "blue", ""]))))  # ['packed_int', 'packed_missing']
