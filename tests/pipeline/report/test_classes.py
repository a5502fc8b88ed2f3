"""Scores of each class, by hand and against scikit-learn's formulas in NumPy."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console

from pipeline.report.classes import largest_share, matrix_of, scores, table_of

TFMA = {
    "confusion_matrix": {
        "multiClassConfusionMatrixAtThresholds": {
            "matrices": [
                {
                    "entries": [
                        {"numWeightedExamples": 6.0},
                        {"predictedClassId": 1, "numWeightedExamples": 2.0},
                        {"actualClassId": 1, "numWeightedExamples": 1.0},
                        {"actualClassId": 1, "predictedClassId": 1, "numWeightedExamples": 3.0},
                        {"actualClassId": 2, "predictedClassId": 1, "numWeightedExamples": 1.0},
                        {"actualClassId": 2, "predictedClassId": 2},
                    ]
                }
            ]
        }
    }
}


def test_what_tfma_writes_is_a_matrix() -> None:
    matrix = matrix_of(TFMA)
    assert matrix == {(0, 0): 6.0, (0, 1): 2.0, (1, 0): 1.0, (1, 1): 3.0, (2, 1): 1.0}
    assert matrix_of({"rows": {"doubleValue": 3.0}}) == {}
    assert largest_share(matrix) == 8 / 13
    assert largest_share({}) is None


def test_scores_are_those_of_the_rows() -> None:
    """Reference: counted in NumPy; exact."""
    random = np.random.default_rng(4)
    actual, predicted = random.integers(0, 4, 300), random.integers(0, 3, 300)
    matrix: dict[tuple[int, int], float] = {}
    for pair in zip(actual.tolist(), predicted.tolist(), strict=True):
        matrix[pair] = matrix.get(pair, 0.0) + 1.0
    found = scores(matrix)
    assert [found[c].rows for c in found] == sorted((found[c].rows for c in found), reverse=True)
    for each, row in found.items():
        right = ((actual == each) & (predicted == each)).sum()
        assert row.rows == (actual == each).sum()
        assert row.share == (actual == each).mean()
        assert row.recall == right / (actual == each).sum()
        if each == 3:  # never predicted
            assert math.isnan(row.precision)
        else:
            assert row.precision == right / (predicted == each).sum()


def shown(matrix: dict[tuple[int, int], float], names: list[str]) -> list[list[str]]:
    out = io.StringIO()
    Console(file=out, width=300).print(table_of(matrix, names, counted="rows"))
    return [line.split() for line in out.getvalue().splitlines()]


def test_the_table_says_what_was_taken_for_what() -> None:
    header, first, second, third = shown(dict(matrix_of(TFMA)), ["ham", "egg"])
    assert header == [
        *["class", "rows", "share", "precision", "recall", "as", "ham", "as", "egg", "as", "2"]
    ]
    assert first == ["ham", "8", "0.6154", "0.8571", "0.7500", "6", "2", "0"]
    assert second == ["egg", "4", "0.3077", "0.5000", "0.7500", "1", "3", "0"]
    assert third == ["2", "1", "0.0769", "-", "0.0000", "0", "1", "0"]


@pytest.mark.parametrize("name", ["[red]", "[/x]", ":cat:"])
def test_names_are_shown_as_they_are(name: str) -> None:
    header, first, *_ = shown(dict(matrix_of(TFMA)), [name, "egg"])
    assert header[5:7] == ["as", name]
    assert first[0] == name


def test_of_many_classes_only_the_scores() -> None:
    lines = shown({(i, i): 1.0 for i in range(40)}, [])
    assert len(lines) == 32
    assert all(len(line) == 5 for line in lines[:-1])
    assert lines[-1] == ["and", "10", "more", "classes"]
