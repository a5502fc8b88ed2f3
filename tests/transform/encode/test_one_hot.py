"""One-hot columns against the rows they were made of, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tensorflow_metadata.proto.v0 import schema_pb2

from transform import FeatureSpec, check_spec

WORDS = ["Cash", "Credit Card", None, "Prcard", "", "Cash"]
DAYS = [1, 7, None, 3, 1, 0]
FARES = [1.0, 2.0, 3.0, None, 5.0, 6.0]
COLUMNS = {"word": WORDS, "day": DAYS, "dense_day": [d or 0 for d in DAYS], "fare": FARES}
SPEC = {
    "groups": [
        {
            "name": "words",
            "columns": "word",
            "encode": {"one_hot": {"values": ["Credit Card", "Cash"]}},
        },
        {"name": "money", "columns": "fare", "scale": "none", "missing_indicator": True},
        {
            "name": "days",
            "columns": ["day", "dense_day"],
            "encode": {"one_hot": {"values": [0, 1, 7]}},
        },
    ]
}
ENDINGS = ("=0", "=1", "=7", "_other", "_missing")


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    return run_transform(SPEC, COLUMNS, dense=("dense_day",), batch_size=4)


def test_columns_come_in_the_order_of_the_spec(result: Any) -> None:
    expected = [
        *("word=Credit Card", "word=Cash", "word_other", "word_missing", "fare", "fare_missing"),
        *(f"day{e}" for e in ENDINGS[:4]),
        *(f"dense_day{e}" for e in ENDINGS[:4]),
        *("day_missing", "dense_day_missing"),
    ]
    assert result.layout.names() == expected
    kinds = {c.name: (c.kind, c.source, c.vocabulary_size) for c in result.layout.columns}
    assert kinds["word=Cash"] == kinds["word_other"] == ("one_hot", "word", None)
    assert kinds["day_missing"] == ("missing_indicator", "day", None)
    assert set(result.written) == {"packed_float", "packed_missing"}


@pytest.mark.parametrize("name", ["day", "dense_day", "word"])
def test_each_row_has_one_1_at_its_value(result: Any, name: str) -> None:
    listed = ["Credit Card", "Cash"] if name == "word" else [0, 1, 7]
    for row, value in enumerate(COLUMNS[name]):
        ending = "_other"
        if value in (None, ""):
            ending = "_missing"
        elif value in listed:
            ending = f"={value}"
        every = [*(f"={v}" for v in listed), "_other", "_missing"]
        ones = [e for e in every if result.column(name + e)[row] == 1.0]
        assert ones == [ending]
        assert sum(result.column(name + e)[row] for e in every) == 1.0


def test_the_mask_tells_whether_the_source_was_missing(result: Any) -> None:
    words = result.written["packed_missing"]
    for i, column in enumerate(result.layout.columns):
        missing = [value in (None, "") for value in COLUMNS[column.source]]
        assert ((words[:, i // 32] >> (i % 32)) & 1).tolist() == missing, column.name


def test_written_equals_transformed_raw_features(result: Any) -> None:
    again = result.output.transform_raw_features(result.raw())
    for name, tensor in again.items():
        assert tensor.numpy().tobytes() == result.written[name].tobytes(), name


def test_unpacked_columns_have_the_same_names_and_values(run_transform: Any, result: Any) -> None:
    unpacked = run_transform({**SPEC, "packed": False}, COLUMNS, dense=("dense_day",))
    assert set(unpacked.written) == set(result.layout.names())
    for name, values in unpacked.written.items():
        np.testing.assert_array_equal(values[:, 0], result.column(name))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "at least 1 item"),
        (["a", "a"], "holds 'a' twice"),
        ([1, "1"], "holds '1' twice"),
        (["a", ""], "the empty text, which is missing"),
        ([True], "valid string"),
    ],
)
def test_values_that_make_no_columns_are_refused(values: list[Any], message: str) -> None:
    group = {"name": "g", "columns": "a", "encode": {"one_hot": {"values": values}}}
    with pytest.raises(ValidationError, match=message):
        FeatureSpec.model_validate({"groups": [group]})


def test_a_name_that_another_column_has_is_refused() -> None:
    schema = schema_pb2.Schema()
    for name in ("a", "a=x"):
        schema.feature.add(name=name, type=schema_pb2.BYTES)
    hot = {"name": "hot", "columns": "a", "encode": {"one_hot": {"values": ["x"]}}}
    spec = {"groups": [hot, {"name": "w", "columns": "a=x", "encode": "vocabulary"}]}
    with pytest.raises(ValueError, match="'a=x' is made by one_hot of 'a' and in group 'w'"):
        check_spec(FeatureSpec.model_validate(spec), schema)


def test_a_float_is_refused() -> None:
    schema = schema_pb2.Schema()
    schema.feature.add(name="a", type=schema_pb2.FLOAT)
    group = {"name": "g", "columns": "a", "encode": {"one_hot": {"values": ["1"]}}}
    with pytest.raises(ValueError, match="encode: one_hot takes string or int"):
        check_spec(FeatureSpec.model_validate({"groups": [group]}), schema)
