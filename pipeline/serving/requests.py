"""Convert rows to JSON bodies for TensorFlow Serving's REST API (`:predict`, row format).

`serving_default` has one input, serialized tf.Examples, which JSON encodes as `{"b64": ...}`. `raw`
has one input per column; every row names all of them, with lists of equal length in one request.
Source: tensorflow_serving/g3doc/api_rest.md and util/json_tensor.cc, 2.16 to 2.20.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipeline.common.errors import ConfigError, missing_columns
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.run.cell_reading import cell_reading
from pipeline.run.input_rows import InputFormat, InputRows, format_of, input_files, open_rows
from pipeline.run.predictor import KINDS
from pipeline.run.raw_rows import ModelRows, model_rows
from pipeline.serving.exported_model import RAW, SERVING_DEFAULT, ExportedModel, RawColumn

if TYPE_CHECKING:
    import pyarrow as pa

    from components import CsvOptions

ServingTarget = Literal["kserve", "vertex"]
_MISSING = {"string": b"", "float32": float("nan"), "int64": int(np.iinfo(np.int64).min)}


@dataclass(frozen=True)
class ServingRows:
    """Rows to send.

    Attributes:
        path: Path of the file, for messages.
        numbers: Number of each row in the file, from 1.
        rows: The same rows converted for the model.
        examples: The same rows as serialized tf.Examples.
    """

    path: str
    numbers: Sequence[int]
    rows: ModelRows
    examples: Sequence[bytes]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.numbers)


@contextmanager
def rows_file(
    source: str,
    model: str,
    kind: InputFormat | None = None,
    csv_options: CsvOptions | None = None,
) -> Iterator[InputRows]:
    """Open a file of rows for a SavedModel, as `predict` does.

    Raises:
        ConfigError: The file does not exist, or cannot be read.
    """
    kind = kind or format_of(source)
    with input_files(source, kind) as files:
        options = cell_reading(model, files, source, kind, csv_options)
        yield open_rows(files, source, kind, options, skip=False)


def first_rows(found: InputRows, model: ExportedModel, count: int) -> ServingRows:
    """Return the first rows of a file, converted to the types that the model takes.

    Raises:
        ConfigError: A column is missing, a value has another type, or there are no rows.
    """
    import pyarrow as pa

    names = [column.name for column in model.columns]
    lacking = sorted(set(names) - set(found.columns))
    if lacking:
        others = [name for name in found.columns if name not in names]
        raise ConfigError(
            f"--data={found.path}: {missing_columns(lacking, others)} (required by the model). "
            "Add them; leave a cell empty where the value is missing."
        )
    found.needed = {column.name: KINDS[column.dtype] for column in model.columns}
    batches, total = [], 0
    for batch in found.batches:
        batches.append(batch.slice(0, count - total))
        total += batches[-1].num_rows
        if total >= count:
            break
    if not total:
        raise ConfigError(f"--data={found.path}: has no rows; give a file with at least one.")
    columns = []
    for name in names:
        parts = [_column(batch, name) for batch in batches]
        whole = pa.chunked_array(parts) if len({p.type for p in parts}) == 1 else None
        if whole is None:
            raise ConfigError(
                f"--data={found.path}: {name} changes its type within the first {total} rows; "
                "use fewer rows."
            )
        columns.append(pa.concat_arrays(whole.chunks))
    batch = pa.RecordBatch.from_arrays(columns, names)
    rows = model_rows(batch, {c.name: KINDS[c.dtype] for c in model.columns}, found.texts)
    if rows.wrong:
        wrong = rows.wrong[0]
        location = found.location(wrong.column, wrong.value, wrong.row)
        raise ConfigError(
            f"--data={found.path}{location}: {wrong.column}={wrong.value!r} is not "
            f"{wrong.expected}, which the model expects there. Correct it."
        )
    return ServingRows(found.path, range(1, total + 1), rows, rows.examples())


def request_body(model: ExportedModel, signature: str, rows: ServingRows, places: range) -> bytes:
    """Return the body of a `:predict` request.

    Args:
        model: The model.
        signature: `serving_default`, which the body does not name, or `raw`, which it does.
        rows: Rows of the whole file.
        places: Indices of the rows to send, from 0.

    Raises:
        ConfigError: A row has no value in a column that needs one.
    """
    if signature == SERVING_DEFAULT:
        texts = [base64.b64encode(rows.examples[i]).decode() for i in places]
        return _as_json({"instances": [{"b64": text} for text in texts]})
    values = {c.argument: _column_values(c, rows, places) for c in model.columns}
    instances = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return _as_json({"signature_name": RAW, "instances": instances})


def _as_json(body: JsonObject) -> bytes:
    """Return the body with one line per row, so that people can read the example."""
    # TensorFlow Serving reads the token NaN, which is the missing value of `raw`.
    parts = [
        f"{json.dumps(key)}: " + (_lines(value) if key == "instances" else json.dumps(value))
        for key, value in body.items()
    ]
    return ("{" + ", ".join(parts) + "}").encode()


def _lines(rows: list[JsonValue]) -> str:
    return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    import pyarrow as pa

    place = batch.schema.get_field_index(name)
    return batch[place] if place >= 0 else pa.nulls(batch.num_rows)


def _column_values(column: RawColumn, rows: ServingRows, places: range) -> list[JsonValue]:
    """Return a JSON value per row: lists of equal length, or scalars, by the input's shape."""
    lists = [[_json_value(v) for v in rows.rows.columns[column.name][i].as_py()] for i in places]
    if column.shape is None:
        longest = max(1, *(len(row) for row in lists))
        filler = _json_value(_MISSING[column.dtype])
        return [row + [filler] * (longest - len(row)) for row in lists]
    size = int(np.prod(column.shape))  # 1 without dimensions
    for place, row in zip(places, lists, strict=True):
        if len(row) != size:
            raise ConfigError(
                f"--data={rows.path}, row {rows.numbers[place]}: {column.name} has {len(row)} "
                f"values, and the model takes {size} in every row. Correct it."
            )
    return [np.reshape(np.array(row, object), column.shape).tolist() for row in lists]


def _json_value(value: bytes | float | int | None) -> JsonValue:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, float):
        return float(str(np.float32(value)))  # 0.1, not 0.10000000149011612
    return value
