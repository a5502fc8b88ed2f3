"""What one_hot refuses; its columns: test_contract.py.

Sets of listed values in every storage, against the rows they were made of, exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")


from transform.columns.inputs import DenseColumns, tensor_type  # noqa: E402
from transform.encode.encoder import Inputs  # noqa: E402
from transform.encode.table import encoded  # noqa: E402
from transform.resolve.output_columns import output_columns  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402

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


def test_each_listed_value_has_a_column() -> None:
    for storage in STORAGES:
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
    found, _, _ = _encoded(_column([[1, 7], [], [5]], "ragged", tf.int64), [7, 1])
    assert found.tolist() == [[1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_a_dense_column_of_several_values_is_known_before_it_runs() -> None:
    seen = tensor_type(tf.zeros([2, 3], tf.int64))
    assert (seen.type, seen.description) == (  # type: ignore[union-attr]
        "int",
        "a column of shape (2, 3), more than one value per row",
    )
