"""Tables with about as many columns as rows, where a network learns the rows by heart.

A small hidden layer with half of it dropped, no bends of the inputs and a strong weight decay: they
were chosen on simulated tables (make_classification, make_regression) of more columns than rows. A
larger weight decay makes probabilities worse, because AdamW holds each weight below 1 / decay.
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
    """Whether a table has so few rows for its columns that it needs strong regularisation.

    Args:
        rows: For training.
        columns: That are features.
    """
    return columns >= FEWEST_COLUMNS and rows <= ROWS_PER_COLUMN * columns
