"""The rows of a batch that are in each slice, as TFMA's SliceKeyExtractor decides row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tensorflow_model_analysis.api import types
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.utils import util

_SliceKey = tuple[tuple[str, Any], ...]


def slice_rows(
    specs: list[config_pb2.SlicingSpec],
    preferred: Sequence[Mapping[str, Any]],
    others: Mapping[str, Any],
    rows: int,
) -> Iterator[tuple[_SliceKey, np.ndarray | slice]]:
    """Yield each slice that occurs in a batch, with the numbers of its rows.

    TFMA itself finds the slices, once for each distinct combination of the values that a
    specification reads.

    Args:
        specs: Columns and values by which to slice.
        preferred: Transformed features of each model, batches of `rows`.
        others: Features to use where no model has a transformed feature of a name.
        rows: Number of rows.
    """
    columns: dict[tuple[int, str], _Distinct] = {}
    found: dict[_SliceKey, list[np.ndarray]] = {}
    for spec in specs:
        read = []
        for name in (*spec.feature_keys, *spec.feature_values):
            sources = [i for i, each in enumerate(preferred) if each.get(name) is not None]
            for source in sources or ([-1] if others.get(name) is not None else []):
                features = others if source < 0 else preferred[source]
                if (source, name) not in columns:
                    columns[source, name] = _Distinct(name, features[name], rows)
                read.append((source, name))
        if not (spec.feature_keys or spec.feature_values):
            yield (), slice(None)
            continue
        single = slicer_lib.SingleSliceSpec(spec=spec)
        for first, group in _groups([columns[key].codes for key in read], rows):
            dicts: list[dict[str, np.ndarray]] = [{} for _ in range(len(preferred) + 1)]
            for source, name in read:
                dicts[source][name] = columns[source, name].values_of(first)
            for key in slicer_lib.get_slices_for_features_dicts(dicts[:-1], dicts[-1], [single]):
                found.setdefault(key, []).append(group)
    for key, groups in found.items():
        # Several specifications may make the same slice; a row is in it once.
        yield key, groups[0] if len(groups) == 1 else np.unique(np.concatenate(groups))


class _Distinct:
    """A column with a number for each distinct value, or set of values, of a row."""

    def __init__(self, name: str, column: Any, rows: int):
        """Number the values of a column: a dense, ragged or sparse tensor with `rows` rows."""
        self.codes = np.zeros(rows, np.int64)
        if isinstance(column, types.VarLenTensorValue):
            at, values = np.asarray(column.indices[:, 0], np.int64), np.asarray(column.values)
        else:
            at, values = np.arange(rows), np.ravel(column) if np.size(column) == rows else None
        if values is not None and len(np.unique(at)) == len(at):
            codes, distinct = pd.factorize(values, use_na_sentinel=False)
            self.codes[at] = codes + 1
            self._values = [values[:0], *np.reshape(distinct, [-1, 1])]
        else:
            self._values, seen = [], {}
            for row, extracts in enumerate(util.split_extracts({name: column})):
                value = extracts[name]
                flat = np.ravel(getattr(value, "values", value))
                self.codes[row] = seen.setdefault(tuple(flat.tolist()), len(seen))
                self._values += [flat] if len(seen) > len(self._values) else []

    def values_of(self, row: int) -> np.ndarray:
        """Return the values of a row, `[values]`."""
        return self._values[self.codes[row]]


def _groups(columns: list[np.ndarray], rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row and all rows of each combination of codes."""
    codes = np.zeros(rows, np.int64)
    for each in columns:
        _, codes = np.unique(codes * (each.max(initial=0) + 1) + each, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    for group in np.split(order, ends[:-1]) if rows else []:
        yield int(group[0]), group
