"""Settings for tables with about as many columns as rows, where a network memorizes the rows.

A small hidden layer with a dropout of one half, no knots for the inputs, and a strong weight decay.
They were chosen on simulated tables (make_classification, make_regression) with more columns than
rows. A larger weight decay makes probabilities worse, because AdamW keeps each weight below
1 / decay.
"""

from __future__ import annotations

from typing import NamedTuple

FEWEST_COLUMNS = 50
ROWS_PER_COLUMN = 4


class ModelSize(NamedTuple):
    """Settings of `training.model` and of its optimizer."""

    hidden_units: list[int]
    dropout: float
    knots: int
    weight_decay: float


WIDE = ModelSize(hidden_units=[16], dropout=0.5, knots=0, weight_decay=2.0)


def is_wide(rows: int, columns: int) -> bool:
    """Return whether a table has so few rows for its columns that it needs strong regularization.

    Args:
        rows: Number of training rows.
        columns: Number of feature columns.
    """
    return columns >= FEWEST_COLUMNS and rows <= ROWS_PER_COLUMN * columns
