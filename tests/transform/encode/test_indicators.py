"""What one_hot refuses; its columns: test_contract.py.

Sets of listed values in every storage, against the rows they were made of, exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

tf = pytest.importorskip("tensorflow")

from tensorflow_metadata.proto.v0 import schema_pb2  # noqa: E402

from transform import FeatureSpec, check_spec  # noqa: E402
from transform.columns.inputs import DenseColumns, tensor_type  # noqa: E402
from transform.encode.encoder import Inputs  # noqa: E402
from transform.encode.table import encoded  # noqa: E402
from transform.resolve.output_columns import output_columns  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402


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


ROWS = [["a", "b", "a"], [], ["z"], ["b"], ["", "b"], [""]]
STORAGES = ("sparse", "ragged", "dense")


def _column(rows: list[list[Any]], storage: str, dtype: Any) -> Any:
    ragged = tf.ragged.constant(rows, dtype, ragged_rank=1)
    if storage == "sparse":
        return ragged.to_sparse()
    return ragged if storage == "ragged" else ragged.to_tensor(shape=[None, 3])


def _encoded(column: Any, values: list[Any]) -> tuple[np.ndarray, tuple[str, ...], Any]:
    group = Group.model_validate(
        {"name": "g", "columns": "c", "encode": {"multi_hot": {"values": values}}}
    )
    resolved = ResolvedGroup(group, ("c",))
    (block,) = encoded(
        [resolved], Inputs(DenseColumns({}, numbers=[], texts=[]), {"c": column}, {}, {})
    )
    assert block.names == tuple(output.name for output in output_columns(resolved))
    return block.values.numpy(), block.names, block.missing.numpy()


@pytest.mark.parametrize("storage", STORAGES)
def test_each_listed_value_has_a_column(storage: str) -> None:
    found, names, missing = _encoded(_column(ROWS, storage, tf.string), ["b", "a"])
    assert names == ("c=b", "c=a", "c_other", "c_missing")
    expected = [
        [1.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 1.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0],
    ]
    assert found.tolist() == expected
    assert found.dtype == np.float32
    assert missing.all(axis=1).tolist() == missing.any(axis=1).tolist() == [
        row[3] == 1.0 for row in expected
    ]  # fmt: skip


@pytest.mark.parametrize("storage", ["sparse", "ragged"])
def test_ints_are_their_texts(storage: str) -> None:
    found, _, _ = _encoded(_column([[1, 7], [], [5]], storage, tf.int64), [7, 1])
    assert found.tolist() == [[1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_one_value_per_row_is_a_set_too() -> None:
    found, _, _ = _encoded(tf.constant(["a", "", "z"]), ["a"])
    assert found.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_a_batch_without_any_value_is_all_missing() -> None:
    found, _, _ = _encoded(_column([[], []], "sparse", tf.string), ["a"])
    assert found.tolist() == [[0, 0, 1], [0, 0, 1]]


def test_a_dense_column_of_several_values_is_known_before_it_runs() -> None:
    seen = tensor_type(tf.zeros([2, 3], tf.int64))
    assert (seen.type, seen.description) == (  # type: ignore[union-attr]
        "int",
        "a column of shape (2, 3), more than one value per row",
    )
