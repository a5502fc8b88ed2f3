"""What all of this package is made of: columns as they come, and as steps hand them on (`Block`).

Loads no TensorFlow: `tf` is loaded at its first use, so that a spec is parsed and checked without.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from shared_core.feature_layout import ImageFeature, TokenFeature
else:

    class _TensorFlow:
        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module("tensorflow"), name)

    tf = _TensorFlow()


QUANTILE_GRID = 1000  # learned quantiles are multiples of 1/1000, and as exact as that
LARGEST = 2.0**480  # 3e144: for mean and variance, larger numbers count as this; no sum overflows


class IdCount(NamedTuple):
    """The number of ids of a column; that of a vocabulary is known after the analysis."""

    total: int | tf.Tensor  # int64 scalar: known after the analysis
    vocabulary: str | None = None  # file with one known value per line
    extra_ids: int = 0  # ids beside those of known values: unseen and missing ones


class Entry(NamedTuple):
    """The learned value that a 0/1 column stands for: a line of a vocabulary file."""

    vocabulary: str
    line: int  # from 0


class Block(NamedTuple):
    """Output columns of one dtype, side by side, in any order."""

    names: tuple[str, ...]
    values: tf.Tensor  # float32 or int64 [batch, n]
    sources: tuple[str, ...]
    missing: tf.Tensor  # bool [batch, n]: of the sources
    sizes: tuple[IdCount | None, ...]  # None for floats
    entries: tuple[Entry | None, ...] | None = None  # None: no column has one


class Separate(NamedTuple):
    """A transformed feature that is not packed."""

    values: ColumnTensor
    feature: ImageFeature | TokenFeature  # its entry in the layout
    beside: Columns  # outputs that no model takes
    ids: int | tf.Tensor | None = None  # number of ids, int64 scalar


def take_columns(stacked: tf.Tensor, wanted: Sequence[int]) -> tf.Tensor:
    """Return the columns of a matrix at the places `wanted`; all of them: the matrix itself."""
    first, n = wanted[0], len(wanted)
    if list(wanted) != list(range(first, first + n)):
        return tf.gather(stacked, wanted, axis=1)
    return stacked if n == stacked.shape[1] else tf.slice(stacked, [0, first], [-1, n])


def joined(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return matrices side by side; one alone is itself."""
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)


# A column as TFT passes it: dense where the schema promises a value in every row.
ColumnTensor: TypeAlias = "tf.Tensor | tf.SparseTensor | tf.RaggedTensor"
Columns: TypeAlias = Mapping[str, ColumnTensor]
# In the graph of the analysis, or of one accumulator.
Array: TypeAlias = "np.ndarray | tf.Tensor"
# Name -> number, text, list of these, or None: what the page of a run shows of a step.
Explanation: TypeAlias = Mapping[str, Any]
