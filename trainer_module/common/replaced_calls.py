"""Replace what layers compute, for the duration of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras


@contextlib.contextmanager
def replaced_calls(
    replacements: Iterable[tuple[keras.layers.Layer, Callable[..., Any]]],
) -> Iterator[None]:
    """Give layers another `call` in the block, and their previous one after it.

    Args:
        replacements: Layers, each with its `call` in the block.
    """
    pairs = list(replacements)
    # A layer has a `call` among its attributes only if it was replaced before, as by `recompute`.
    before = [vars(layer).get("call") for layer, _ in pairs]
    for layer, call in pairs:
        vars(layer)["call"] = call
    try:
        yield
    finally:
        for (layer, _), call in zip(pairs, before, strict=True):
            if call is None:
                del vars(layer)["call"]
            else:
                vars(layer)["call"] = call
