"""Which raw columns the predictions depend on, from the exported model and evaluated rows.

    importance of column c = mean over rows of |f(row with c of another row) - f(row)|

of the output that changes most (L. Breiman, "Random Forests", 2001, section 10, for predictions in
place of errors). Used where the run has no attributions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.common.errors import first_line
from pipeline.graph.node_names import NodeName
from pipeline.report.result import RunResult

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS, _FEWEST_ROWS = 1000, 30
_FEWEST_COLUMNS = 10
_MOST_CELLS = 4_000_000  # columns to shuffle times rows times columns of a row
_MOST_GROUPS = 200  # row groups that are opened


class Importances(NamedTuple):
    """The importance of columns.

    Attributes:
        sizes: Raw column -> its importance, the largest first.
        rows: Rows that were predicted.
        columns: Raw columns of the model, of which those in `sizes` were measured.
    """

    sizes: dict[str, float]
    rows: int
    columns: int


def importances_of(run: RunResult) -> Importances | str:
    """Return the importance of the columns, or a sentence that says why it is unknown."""
    exported = run.folder(NodeName.TRAINER, "model")
    examples = run.folder(NodeName.EXAMPLE_GEN, "examples")
    if exported is None or examples is None:
        return "This run has no exported model or no rows, or they were deleted."
    model = exported / "Format-Serving"
    try:
        return _measure(model, examples / f"Split-{run.config.data.evaluation_split}")
    except Exception as error:  # TensorFlow's, of rows that the model refuses, and of files
        return (
            f"The exported model cannot predict rows: {type(error).__name__}: {first_line(error)}"
        )


def _measure(model: Path, split: Path) -> Importances:
    import pyarrow as pa
    import tensorflow as tf

    described = json.loads((model / "assets.extra" / "raw_columns.json").read_text("utf-8"))
    names = [each["name"] for each in described["columns"]]
    rows = read_rows(split)
    width = max(1, rows.num_columns)
    known = [name for name in names if name in rows.schema.names]
    known = known[: max(_FEWEST_COLUMNS, _MOST_CELLS // (_FEWEST_ROWS * width))]
    most = _MOST_CELLS // max(1, len(known) * width)
    rows = rows.slice(0, min(MOST_ROWS, max(_FEWEST_ROWS, most)))
    loaded: Any = tf.saved_model.load(str(model))
    predict = loaded.signatures["serving_default"]
    expected = _predictions(predict, rows)
    other = pa.array(np.roll(np.random.default_rng(0).permutation(rows.num_rows), 1))
    sizes = {}
    for name in known:
        place = rows.schema.get_field_index(name)
        columns = list(rows.columns)
        columns[place] = columns[place].take(other)
        changed = _predictions(predict, pa.RecordBatch.from_arrays(columns, rows.schema.names))
        sizes[name] = float(np.abs(changed - expected).max(axis=1).mean())
    ordered = dict(sorted(sizes.items(), key=lambda item: -item[1]))
    return Importances(ordered, rows.num_rows, len(names))


def _predictions(predict: Any, rows: pa.RecordBatch) -> np.ndarray:
    """Return the probabilities, or the first output of a model without, `[rows, outputs]`."""
    import tensorflow as tf

    from components.arrow_example_gen.columns import serialize

    outputs = predict(examples=tf.constant(serialize(rows)))
    name = next((each for each in ("probabilities", "outputs") if each in outputs), None)
    values = outputs[name or next(iter(outputs))].numpy()
    return values.reshape(rows.num_rows, -1).astype(np.float64)


def read_rows(folder: Path, most: int = MOST_ROWS) -> pa.RecordBatch:
    """Return at most `most` rows of a split's folder of Parquet files; ValueError without a row.

    Each row group gives its first rows, in proportion to its rows. ExampleGen shuffles the rows of
    a row group, so that they are a random sample of it, and no other rows are decoded.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(file) for file in sorted(folder.glob("*.parquet"))]
    groups = [(file, i) for file in files for i in range(file.metadata.num_row_groups)]
    groups = groups[:: -(-len(groups) // _MOST_GROUPS) or 1]
    sizes = np.array([file.metadata.row_group(i).num_rows for file, i in groups])
    if not sizes.sum():
        raise ValueError(f"there are no rows in {folder}")
    ends = np.floor(min(most, sizes.sum()) * sizes.cumsum() / sizes.sum() + 1e-6).astype(int)
    batches = []
    for (file, group), count in zip(groups, np.diff(ends, prepend=0).tolist(), strict=True):
        left = count
        for batch in file.iter_batches(batch_size=max(1, count), row_groups=[group]):
            batches.append(batch.slice(0, left))
            left -= batches[-1].num_rows
            if left <= 0:
                break
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
