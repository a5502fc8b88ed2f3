"""Replace what layers compute, for the duration of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras


@contextlib.contextmanager
def replaced_calls(
    replacements: Iterable[tuple[keras.Operation, Any]], attribute: str = "call"
) -> Iterator[None]:
    """Give layers another `call` in the block, and their previous one after it.

    Args:
        replacements: Layers, each with its `call` in the block.
        attribute: Another attribute to replace instead of `call`.
    """
    pairs = list(replacements)
    # A layer has a `call` among its attributes only if it was replaced before, as by `recompute`.
    before = [vars(layer).get(attribute) for layer, _ in pairs]
    for layer, value in pairs:
        vars(layer)[attribute] = value
    try:
        yield
    finally:
        for (layer, _), value in zip(pairs, before, strict=True):
            if value is None:
                del vars(layer)[attribute]
            else:
                vars(layer)[attribute] = value
