"""Find the raw column that alone predicts the label best, measured on its transformed columns."""

from __future__ import annotations

import numpy as np

from trainer_module.baselines.columns import Columns
from trainer_module.baselines.design_matrix import DesignMatrix
from trainer_module.baselines.one_column import (
    codes_of_numbers,
    score_column,
    target_of_classes,
    target_of_numbers,
)
from trainer_module.baselines.record import StrongestColumn
from trainer_module.model.model_context import LabelKind

MAX_ROWS = 10_000
_MIN_ROWS = 50


def strongest_column(
    columns: Columns, matrix: DesignMatrix, labels: np.ndarray, kind: LabelKind
) -> StrongestColumn | None:
    """Return the strongest column; None for fewer than 50 rows with a usable label.

    Args:
        columns: The columns of the matrix.
        matrix: `[rows, width]`.
        labels: `[rows]`.
        kind: Kind of the label.
    """
    every = -(-len(labels) // MAX_ROWS)
    matrix, labels = matrix[::every], labels[::every].astype(np.float64)
    usable = np.isfinite(labels)
    if kind != "regression":
        usable &= labels >= 0
    if usable.sum() < _MIN_ROWS:
        return None
    labels, columns_of_rows = labels[usable], matrix[usable].to_array()
    target = (
        target_of_numbers(labels)
        if kind == "regression"
        else target_of_classes(labels.astype(np.int64))
    )
    found = [
        StrongestColumn(source, score_column(_codes(columns_of_rows, slices), target).share)
        for source, slices in columns.sources().items()
    ]
    return max(found, key=lambda each: each.share, default=None)


def _codes(matrix: np.ndarray, slices: list[slice]) -> np.ndarray:
    """Return one code per row for all columns of a raw column."""
    codes = np.zeros(len(matrix), np.int64)
    for each in slices:
        part = matrix[:, each]
        more = part.argmax(axis=1) if part.shape[1] > 1 else codes_of_numbers(part[:, 0])
        _, codes = np.unique(codes * (int(more.max()) + 1) + more, return_inverse=True)
        codes = np.ravel(codes)
    return codes
