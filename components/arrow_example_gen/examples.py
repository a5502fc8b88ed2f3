"""Rows of record batches as serialized tf.Examples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as types
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

from components.arrow_example_gen.columns import as_lists, kind_of

_ENCODED = [
    list_of(value)
    for list_of in (pa.list_, pa.large_list)
    for value in (pa.int64(), pa.float32(), pa.binary(), pa.large_binary())
]


def serialize(batch: pa.RecordBatch) -> list[bytes]:
    """Return each row as a tf.Example.

    A missing value (a null or an empty list) is an absent feature. A feature without values would
    be an error for `tf.io.FixedLenFeature`, also with a default value.

    Args:
        batch: columns that `kind_of` knows; others, and those of type null, are left out.
    """
    known = {
        name: empty_to_null(column if column.type in _ENCODED else as_lists(column, kind))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if (kind := kind_of(column.type)) is not None
    }
    if not known:
        return [b""] * batch.num_rows
    columns = pa.RecordBatch.from_arrays(list(known.values()), list(known))
    return RecordBatchToExamplesEncoder().encode(columns)


def empty_to_null(column: pa.Array) -> pa.Array:
    """Return a column of lists whose empty lists are null; any other column as it is."""
    if not (types.is_list(column.type) or types.is_large_list(column.type)):
        return column
    lengths = np.asarray(column.value_lengths().fill_null(0))
    if lengths.all():
        return column
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(lengths.dtype)
    offsets = pa.array(ends, mask=np.append(lengths == 0, False))
    return type(column).from_arrays(offsets, column.flatten())
