"""One trace of a `preprocessing_fn` for all questions about it.

TFX asks which columns are analyzed (twice), which columns are transformed, which cache entries the
analysis has and which datasets it reads. For each answer, TFT traces the function, which takes
longer than the answer from the graph.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow_transform import impl_helper, tf2_utils


@contextlib.contextmanager
def traces_shared() -> Iterator[None]:
    """Trace each function once per signature and folder of temporary files during the block.

    Traces that are saved, or that see results of analyzers, are not affected: TFT makes them by
    another function. Those get fewer operations for columns without rows: see `_missing_inputs`.
    """
    original = impl_helper.trace_preprocessing_function
    supply = tf2_utils.supply_missing_inputs
    traces: list[tuple[tuple[Any, ...], _Trace]] = []

    def trace(*args: Any, **options: Any) -> Any:
        asked = (args, sorted(options.items()))
        for known, found in traces:
            if known == asked:
                return found.restored()
        found = _Trace(original(*args, **options))
        traces.append((asked, found))
        return found.traced

    impl_helper.trace_preprocessing_function = trace
    tf2_utils.supply_missing_inputs = functools.partial(_missing_inputs, supply)
    try:
        yield
    finally:
        impl_helper.trace_preprocessing_function = original
        tf2_utils.supply_missing_inputs = supply


def _missing_inputs(
    original: Callable[..., Mapping[str, Any]],
    structured_inputs: Mapping[str, Any],
    batch_size: int,
    missing_keys: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return what TFT's function does, with one default for all sparse columns of a type.

    TFT makes about 20 operations for each of them: the most expensive part of wide tables.
    """
    found, defaults = {}, {}
    for key in missing_keys or list(structured_inputs):
        tensor = structured_inputs[key]
        if not isinstance(tensor, tf.SparseTensor):
            found |= original(structured_inputs, batch_size, [key])
            continue
        kind = (tensor.dtype, tensor.shape.ndims)
        if kind not in defaults:
            made = original(structured_inputs, batch_size, [key])[key]
            parts = (made.indices, made.values, made.dense_shape)
            defaults[kind] = [part.op.inputs[0] for part in parts]
        parts = (tensor.indices, tensor.values, tensor.dense_shape)
        found[key] = tf.SparseTensor(
            *(
                tf.raw_ops.PlaceholderWithDefault(input=default, shape=part.shape)
                for default, part in zip(defaults[kind], parts, strict=True)
            )
        )
    return found


class _Trace:
    """The graph of a function with its inputs and outputs."""

    def __init__(self, traced: tuple[tf.Graph, Any, Any]):
        self.traced = traced
        graph = traced[0]
        self._collections = {key: graph.get_collection(key) for key in graph.collections}

    def restored(self) -> tuple[tf.Graph, Any, Any]:
        """Return the trace with its first collections; TFT takes analyzers from them when asked."""
        graph = self.traced[0]
        for key in {*graph.collections, *self._collections}:
            graph.clear_collection(key)
            for value in self._collections.get(key, ()):
                graph.add_to_collection(key, value)
        return self.traced
