"""Describe which outputs of the transform graph show `predict` an unknown input.

A category that was not in the training rows gets a separate id, and an unreadable date counts as
missing. In both cases the model still returns a prediction. `assets.extra/input_checks.json` says
where the outputs of the signature `transform_features` show it:

    {"version": 1,
     "categories": [{"column": "town", "output": "packed_int", "position": 0, "ids": [79, 80]}],
     "dates": [{"column": "day", "output": "packed_missing", "word": 0, "bit": 3}]}

A category is unseen if its id is in `ids`, both ends included, or below 0. A date in the input was
unreadable if its bit is 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import tensorflow as tf

from shared_core.feature_layout import Column, FeatureLayout
from trainer_module.common.json_values import Json

FILE = "assets.extra/input_checks.json"
_DATES = ("date", "cyclic", "elapsed")  # kinds of a date's outputs
_BITS = 32  # bits in a word of FeatureLayout.missing
_OTHER = "_other"  # suffix of the one_hot output for values that are not listed


def write_input_checks(directory: str, layout: FeatureLayout) -> None:
    """Write `assets.extra/input_checks.json` of a SavedModel."""
    with tf.io.gfile.GFile(f"{directory}/{FILE}", "w") as stream:
        stream.write(json.dumps({"version": 1, **input_checks(layout)}, indent=1))


def input_checks(layout: FeatureLayout) -> Mapping[str, list[dict[str, Json]]]:
    """Return the content of the file, without its version."""
    categories, dates = [], {}
    for place, column in enumerate(layout.columns):
        if (ids := _unseen_ids(column)) is not None:
            where = {"output": column.output, "position": column.position, "ids": ids}
            categories.append({"column": column.source, **where})
        if column.kind in _DATES and layout.missing is not None and column.source not in dates:
            bit = {"word": place // _BITS, "bit": place % _BITS}
            dates[column.source] = {"column": column.source, "output": layout.missing, **bit}
    return {"categories": categories, "dates": list(dates.values())}


def _unseen_ids(column: Column) -> list[int] | None:
    """Return the first and last id of values that the column's encoder does not know."""
    size = column.vocabulary_size
    if column.kind == "vocabulary" and size is not None and column.extra_ids:
        return [size - column.extra_ids, size - 2]  # the last id stands for missing
    if column.kind == "integer" and size is not None:
        return [size - 2, size - 2]
    if column.kind == "one_hot" and column.name == column.source + _OTHER:
        return [1, 1]
    return None
