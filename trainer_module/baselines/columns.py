"""Transformed features as the columns of a linear model: floats as they are, ids as 0/1 columns.

Ids from a cap on share a column: ids of a vocabulary are in the order of how often they occur.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from trainer_module.model.default_model import id_ranges
from trainer_module.model.model_context import ModelContext

MOST_COLUMNS = 1000
_MOST_IDS = 256
_FEWEST_IDS = 4


class Columns:
    """The columns that a model's inputs make.

        {feature: [rows, ...]} -> [rows, width]

    Attributes:
        width: Their number.
        left_out: Features that make none: text.
    """

    def __init__(self, context: ModelContext, inputs: Sequence[str]) -> None:
        """Lays them out.

        Args:
            context: What the features are.
            inputs: Those that the model takes.
        """
        spec = {name: context.feature_spec[name] for name in inputs}
        self.left_out = [
            name for name, f in spec.items() if not (f.dtype.is_floating or f.dtype.is_integer)
        ]
        self._floats = [name for name, f in spec.items() if f.dtype.is_floating]
        self._ids = {
            name: id_ranges(context, name, math.prod(f.shape))
            for name, f in spec.items()
            if f.dtype.is_integer
        }
        counts = [count for ranges in self._ids.values() for _, count in ranges]
        floats = sum(math.prod(spec[name].shape) for name in self._floats)
        self._cap = _MOST_IDS
        while self._cap > _FEWEST_IDS and floats + self._of_ids(counts) > MOST_COLUMNS:
            self._cap //= 2
        self.width = floats + self._of_ids(counts)

    def _of_ids(self, counts: Sequence[int]) -> int:
        return sum(min(count, self._cap) for count in counts)

    def matrix(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the columns of a batch, in float64; what is not finite is 0."""
        rows = len(next(iter(features.values())))
        parts = [np.zeros((rows, 0))]
        for name in self._floats:
            values = features[name].reshape(rows, -1).astype(np.float64)
            parts.append(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0))
        for name, ranges in self._ids.items():
            ids = features[name].reshape(rows, -1)
            for position, (first, count) in enumerate(ranges):
                last = min(count, self._cap) - 1
                local = ids[:, position] - first
                # As PackedEmbedding takes an id outside its range: for the last.
                local = np.where((local < 0) | (local > last), last, local)
                parts.append(np.eye(last + 1)[local])
        return np.hstack(parts)
