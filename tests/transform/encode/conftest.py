"""One encoder on tensors in this process: what needs no analysis runs without Beam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest


@pytest.fixture(scope="session")
def block_of() -> Callable[..., Any]:
    """`block_of(encode, columns, **group)`: the one block of a group of these columns.

    `encode`: as in the YAML; `columns`: name -> Tensor, SparseTensor or RaggedTensor.
    """
    from transform.columns.inputs import DenseColumns, tensor_type
    from transform.encode.encoder import Inputs
    from transform.encode.table import encoded
    from transform.resolve.output_columns import output_columns
    from transform.resolve.select import reads_texts, takes_lists
    from transform.spec.group import Group, ResolvedGroup

    def block(encode: Any, columns: Mapping[str, Any], **more: Any) -> Any:
        names = tuple(columns)
        group = Group.model_validate({"name": "g", "columns": names, "encode": encode, **more})
        types = {name: tensor_type(tensor) for name, tensor in columns.items()}
        single = () if takes_lists(group) else names
        texts = [name for name in single if reads_texts(group, types[name])]
        numbers = [name for name in single if name not in texts]
        resolved = ResolvedGroup(group, names)
        inputs = Inputs(
            DenseColumns(columns, numbers=numbers, texts=texts),
            columns,
            types,
            {name: name for name in names},
        )
        (made,) = encoded([resolved], inputs)
        # The block has the columns that the layout promises.
        assert sorted(made.names) == sorted(column.name for column in output_columns(resolved))
        return made

    return block
