"""Metrics of each class: precision, recall, and confusions with other classes."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from pipeline.common.json_types import JsonValue
from pipeline.config.evaluation import CONFUSION_MATRIX
from pipeline.report.records import NodeRecord, read_text

MOST_CLASSES = 10
"""Classes up to which the table says what each was taken for."""

MOST_ROWS = 30

Matrix = Mapping[tuple[int, int], float]
"""(actual class, predicted class) -> rows, by their weights."""


class ClassScores(NamedTuple):
    """The scores of one class; NaN if the denominator is 0."""

    rows: float
    share: float
    precision: float
    recall: float


def scores(matrix: Matrix) -> dict[int, ClassScores]:
    """Return precision TP / (TP + FP) and recall TP / (TP + FN) by class, most frequent first."""
    actual: dict[int, float] = defaultdict(float)
    predicted: dict[int, float] = defaultdict(float)
    for (is_one, taken_for), rows in matrix.items():
        actual[is_one] += rows
        predicted[taken_for] += rows
    every = sum(actual.values())
    found = {}
    for each in sorted({*actual, *predicted}, key=lambda c: (-actual[c], c)):
        right = matrix.get((each, each), 0.0)
        found[each] = ClassScores(
            rows=actual[each],
            share=_ratio(actual[each], every),
            precision=_ratio(right, predicted[each]),
            recall=_ratio(right, actual[each]),
        )
    return found


def largest_share(matrix: Matrix) -> float | None:
    """Return the share of rows in the most frequent class; None if there are no rows."""
    found = scores(matrix)
    return next(iter(found.values())).share if found else None


def matrix_of(metrics: Mapping[str, JsonValue]) -> Matrix:
    """Return the confusion matrix in TFMA's metrics of a slice (as JSON), or an empty one."""
    found = metrics.get(CONFUSION_MATRIX, {}).get("multiClassConfusionMatrixAtThresholds", {})
    entries = [entry for matrix in found.get("matrices", ()) for entry in matrix["entries"]]
    # JSON omits fields that are 0.
    return {
        (entry.get("actualClassId", 0), entry.get("predictedClassId", 0)): rows
        for entry in entries
        if (rows := float(entry.get("numWeightedExamples", 0.0)))
    }


def class_names(trainer: NodeRecord | None) -> list[str]:
    """Return the names of the label's classes by id, as stored with the model; [] if none."""
    from trainer_module.tfx.label_names import FILE

    text = read_text(trainer.output("model") if trainer else None, f"Format-Serving/{FILE}")
    return json.loads(text).get("classes") or [] if text else []


def table_of(matrix: Matrix, names: list[str], *, counted: str) -> Table:
    """Return a table with a row for each class, most frequent first, and its predicted classes.

    Args:
        matrix: The confusion matrix of all rows.
        names: Names of the classes, by id.
        counted: Unit of the matrix: rows or weights.
    """
    found = scores(matrix)
    shown = list(found)[:MOST_ROWS]
    predicted = shown if len(found) <= MOST_CLASSES else []
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("class")
    for heading in (counted, "share", "precision", "recall"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in predicted:
        table.add_column(Text(f"as {_name(each, names)}"), justify="right")
    for each in shown:
        row = found[each]
        table.add_row(
            Text(_name(each, names)),
            f"{row.rows:,.10g}",
            *(_shown(value) for value in (row.share, row.precision, row.recall)),
            *(_cell(matrix.get((each, other), 0.0), right=each == other) for other in predicted),
        )
    left = len(found) - len(shown)
    if left:
        table.add_row(Text(f"and {left:,} more classes", style="dim"))
    return table


def _name(each: int, names: list[str]) -> str:
    if each < 0:
        return "unknown"
    return names[each] if each < len(names) else str(each)


def _cell(rows: float, *, right: bool) -> Text:
    return Text(f"{rows:,.10g}", style="" if right or not rows else "red")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _shown(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "-"
