"""Which outputs of a model's transform show, to `predict`, that it does not know an input.

A category that the training rows did not hold gets a separate id, and a date that cannot be read
counts as missing: the model answers all the same. `assets.extra/input_checks.json` says where the
outputs of the signature `transform_features` show it:

    {"version": 1,
     "categories": [{"column": "town", "output": "packed_int", "position": 0, "ids": [79, 80]}],
     "dates": [{"column": "day", "output": "packed_missing", "word": 0, "bit": 3}]}

A category is unseen where its id is in `ids`, both ends included, or below 0; a date that is given
was not read where the bit is 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer_module.data.feature_layout import Column, FeatureLayout

FILE = "assets.extra/input_checks.json"
_DATES = ("date", "cyclic", "elapsed")  # kinds of a date's outputs
_BITS = 32  # of a word of FeatureLayout.missing
_OTHER = "_other"  # the one_hot output of values that are not listed


def write_input_checks(directory: str, layout: FeatureLayout) -> None:
    """Write `assets.extra/input_checks.json` beside a SavedModel."""
    with tf.io.gfile.GFile(f"{directory}/{FILE}", "w") as stream:
        stream.write(json.dumps({"version": 1, **input_checks(layout)}, indent=1))


def input_checks(layout: FeatureLayout) -> Mapping[str, list[dict[str, Any]]]:
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
    """Return the first and the last id of values that the column's encoder does not know."""
    size = column.vocabulary_size
    if column.kind == "vocabulary" and size is not None and column.extra_ids:
        return [size - column.extra_ids, size - 2]  # the last one of all is that of missing
    if column.kind == "integer" and size is not None:
        return [size - 2, size - 2]
    if column.kind == "one_hot" and column.name == column.source + _OTHER:
        return [1, 1]
    return None
