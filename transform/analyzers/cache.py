"""Accumulators in the analyzer cache, an artifact that others may write: data alone, no pickle.

TFT's own analyzers here (`tft.vocabulary`, `tft.sum`) keep JSON; `tft.quantiles`, which pickles, is
not used.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np


def to_bytes(**arrays: np.ndarray) -> bytes:
    """Return arrays in NumPy's npz format, every bit kept; TFT compresses the cache's files."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def from_bytes(encoded: bytes) -> Mapping[str, np.ndarray]:
    """Return the arrays that `to_bytes` wrote.

    Raises:
        ValueError: the bytes are something else, a pickle among others.
    """
    with np.load(io.BytesIO(encoded), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
