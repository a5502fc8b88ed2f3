"""One trace of a `preprocessing_fn` for all questions about it.

TFX asks which columns are analyzed (twice), which columns are transformed, which cache entries the
analysis has and which datasets it reads. For each answer, TFT traces the function, which takes
longer than the answer from the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow_transform import impl_helper


@contextlib.contextmanager
def traces_shared() -> Iterator[None]:
    """Trace each function once per signature and folder of temporary files during the block.

    Traces that are saved, or that see results of analyzers, are not affected: TFT makes them by
    another function.
    """
    original = impl_helper.trace_preprocessing_function
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
    try:
        yield
    finally:
        impl_helper.trace_preprocessing_function = original


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
