"""Convert transformed features to columns of a linear model: floats unchanged, ids as 0/1 columns.

Ids from a limit on share one column. The ids of a vocabulary are ordered by frequency, so the
rarest ids share it. A text has one column for each of its most frequent terms, with the term's
weight. A row has one id of hundreds, so these columns are stored sparsely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trainer_module.common.extras import load
from trainer_module.data.text_bags import other_places, text_bags
from trainer_module.model.default_model import id_ranges
from trainer_module.model.model_context import ModelContext

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_COLUMNS = 1000
_MAX_IDS = 256
_MIN_IDS = 4
_MIN_TERMS = 32  # of each text


class Columns:
    """The columns of a linear model for a model's inputs.

        {feature: [rows, ...]} -> [rows, width]

    Attributes:
        width: Number of columns: first those of floats, then ids, then terms of texts.
        floats: Number of columns of floats.
        id_widths: (number of ids, number of columns) of each id feature value.
        terms: Number of columns of the terms of texts.
        nonzeros: Largest number of ids and terms of a row, which have a column each.
    """

    def __init__(self, context: ModelContext, inputs: Sequence[str]) -> None:
        """Assign columns to the features that the model uses."""
        spec = {name: context.feature_spec[name] for name in inputs}
        self._bags = [
            bag
            for bag in text_bags(context.layout)
            if all(name in spec for name, _ in (*bag.ids, *bag.weights))
        ]
        places = {
            name: other_places(self._bags, name, math.prod(f.shape)) for name, f in spec.items()
        }
        self._floats = {name: places[name] for name, f in spec.items() if f.dtype.is_floating}
        self._ids: dict[str, list[tuple[int, int, int]]] = {}
        for name, feature in spec.items():
            if feature.dtype.is_integer:
                ranges = id_ranges(context, name, math.prod(feature.shape))
                self._ids[name] = [(place, *ranges[place]) for place in places[name]]
        counts = [count for ranges in self._ids.values() for _, _, count in ranges]
        floats = sum(map(len, self._floats.values()))
        self._cap = _MAX_IDS
        while self._cap > _MIN_IDS and floats + self._of_ids(counts) > MAX_COLUMNS:
            self._cap //= 2
        self.width = floats + self._of_ids(counts)
        left = (MAX_COLUMNS - self.width) // max(1, len(self._bags))
        self._terms = [min(bag.count - 1, max(left, _MIN_TERMS)) for bag in self._bags]
        self.floats = floats
        self.id_widths = [(count, min(count, self._cap)) for count in counts]
        self.terms = sum(self._terms)
        self.width += self.terms
        self.nonzeros = len(counts) + sum(len(bag.ids) for bag in self._bags)

    def _of_ids(self, counts: Sequence[int]) -> int:
        return sum(min(count, self._cap) for count in counts)

    def matrix(self, features: Mapping[str, np.ndarray], rows: int) -> csr_array:
        """Return the matrix `[rows, width]` of a batch; non-finite values become 0."""
        columns = [np.tile(np.arange(self.floats, dtype=np.int32), (rows, 1))]
        values = [np.zeros((rows, 0))]
        for name, places in self._floats.items():
            floats = features[name].reshape(rows, -1)[:, places].astype(np.float64)
            values.append(np.nan_to_num(floats, copy=False, nan=0.0, posinf=0.0, neginf=0.0))
        start = self.floats
        for name, ranges in self._ids.items():
            ids = features[name].reshape(rows, -1)
            for position, first, count in ranges:
                last = min(count, self._cap) - 1
                local = ids[:, position] - first
                # Like PackedEmbedding: an id outside its range becomes the last one.
                local = np.where((local < 0) | (local > last), last, local)
                columns.append((start + local[:, None]).astype(np.int32))
                values.append(np.ones((rows, 1)))
                start += last + 1
        for bag, terms in zip(self._bags, self._terms, strict=True):
            if not terms:
                continue
            ids, weights = (
                np.stack([features[name].reshape(rows, -1)[:, at] for name, at in places], axis=1)
                for places in (bag.ids, bag.weights)
            )
            local = np.clip(ids, 0, terms)
            other = local == terms  # all other terms have no column
            columns.append(np.where(other, 0, start + local).astype(np.int32))
            values.append(np.where(other, 0.0, weights))
            start += terms
        table = np.hstack(values)
        csr_array = load("scipy.sparse", "csr_array", extra="tfx")
        ends = np.arange(rows + 1, dtype=np.int32) * table.shape[1]
        places = np.hstack(columns).ravel()
        return csr_array((table.ravel(), places, ends), shape=(rows, self.width))
