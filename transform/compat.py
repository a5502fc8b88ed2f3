"""The few names of tensorflow_transform that are not public; the same in 1.16 and 1.21.

Public `tft` has no custom vector analyzer that takes part in TFT's combiner packing, no integer
range of our tensor: TFT's analyzers use these themselves.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow_transform import analyzer_nodes, analyzers, schema_inference

Combiner = analyzer_nodes.Combiner  # its repr is part of the key of TFT's analyzer cache
TensorInfo = analyzer_nodes.TensorInfo
CacheCoder = analyzer_nodes.CacheCoder
JsonNumpyCacheCoder = analyzer_nodes.JsonNumpyCacheCoder


def combine(combiner: Combiner, *tensors: tf.Tensor, name: str) -> tuple[tf.Tensor, ...]:
    """Apply a combiner over the whole analysis data; return its outputs as tensors of the graph.

    `name` is what Beam's stages show; TFT takes it, made unique, from the name scope.
    """
    with tf.compat.v1.name_scope(name):
        outputs = analyzers.apply_cacheable_combine_operation(combiner, *tensors)
        return tuple(analyzer_nodes.wrap_as_tensor(output) for output in outputs)


def set_int_domain(tensor: tf.Tensor, size: int | tf.Tensor) -> None:
    """Declare in the transformed schema that `tensor` holds ids 0..size-1."""
    maximum = tf.cast(tf.convert_to_tensor(size), tf.int64) - 1
    schema_inference.set_tensor_schema_override(tensor, tf.constant(0, tf.int64), maximum)
