"""The few names of tensorflow_transform that are not public; the same in 1.16 and 1.21.

Public `tft` has no custom vector analyzer that takes part in TFT's combiner packing, no integer
range of our tensor: TFT's analyzers use these themselves.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_transform import analyzer_nodes, analyzers, schema_inference

_FLOATS = analyzer_nodes.JsonNumpyCacheCoder(np.float64)


class Combiner(analyzer_nodes.Combiner):
    """Merges accumulators two by two. Its repr is part of the key of TFT's analyzer cache."""

    outputs: Sequence[tuple[tf.DType, list[int | None]]]  # dtypes and shapes of what it finds

    def add_input(self, accumulator: Any, batch_values: Sequence[np.ndarray]) -> Any:
        """Merge a batch that is an accumulator itself."""
        return self.merge(accumulator, batch_values[0])

    def merge(self, a: Any, b: Any) -> Any:
        """Return an accumulator of what both have seen; `a` may be changed."""
        raise NotImplementedError

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Merge any number of accumulators into a new one."""
        return functools.reduce(self.merge, accumulators, self.create_accumulator())

    def encode(self, accumulator: Any) -> bytes:
        """Return what the cache holds: JSON of a float64 array keeps every bit, infinities too."""
        return _FLOATS.encode_cache(accumulator)

    def decode(self, encoded: bytes) -> Any:
        """Return the accumulator that `encode` wrote."""
        return _FLOATS.decode_cache(encoded)

    def output_tensor_infos(self) -> list[analyzer_nodes.TensorInfo]:
        """Describe the outputs."""
        return [analyzer_nodes.TensorInfo(dtype, shape, None) for dtype, shape in self.outputs]

    @property
    def accumulator_coder(self) -> analyzer_nodes.CacheCoder:
        """What TFT encodes the cache with."""
        return _Coder(self)


class _Coder(analyzer_nodes.CacheCoder):
    def __init__(self, combiner: Combiner):
        self._combiner = combiner

    def encode_cache(self, cache: Any) -> bytes:
        return self._combiner.encode(cache)

    def decode_cache(self, encoded_cache: bytes) -> Any:
        return self._combiner.decode(encoded_cache)


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


# The analyzer cache is an artifact that others may write: data alone, no pickle. The analyzers of
# TFT that we use (`tft.vocabulary`, `tft.sum`) keep JSON; `tft.quantiles` pickles.


def to_bytes(**arrays: np.ndarray) -> bytes:
    """Return arrays in NumPy's npz format, every bit kept; TFT compresses the cache's files."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def from_bytes(encoded: bytes) -> Mapping[str, np.ndarray]:
    """Return the arrays that `to_bytes` wrote; a ValueError for other bytes, also a pickle."""
    with np.load(io.BytesIO(encoded), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
