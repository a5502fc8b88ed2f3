"""The sampled rows with the largest loss, with their raw columns."""

from __future__ import annotations

import numpy as np

from pipeline.page.elements import Block, Cell, Column, Row, Table, Text, number_cell
from pipeline.page.partial_dependence import is_numeric
from pipeline.page.sampled_rows import SampledRows

MOST_ROWS = 20
_MOST_COLUMNS = 12
"""Raw columns in the table; the others are in the details of each row."""
_MOST_DETAILS = 200


def blocks_of(sample: SampledRows, *, label: str) -> list[Block]:
    """Return the table, or a sentence if no row has a loss.

    Args:
        sample: The rows.
        label: Name of the label.
    """
    losses = sample.losses
    order = np.argsort(-np.where(np.isfinite(losses), losses, -np.inf), kind="stable")
    order = order[: min(MOST_ROWS, int(np.isfinite(losses).sum()))]
    if not len(order):
        return [Text("There are no worst rows: no row has a loss that is a number.", "quiet")]
    known = sample.model.columns
    names = [*known, *(name for name in sample.rows.schema.names if name not in known)]
    names = [name for name in names if name in sample.rows.schema.names]
    rows = sample.rows.take(_indices(order))
    values = {name: rows.column(rows.schema.get_field_index(name)).to_pylist() for name in names}
    regression = sample.model.kind == "regression"
    found = []
    for place, row in enumerate(order.tolist()):
        cells = [
            number_cell(float(losses[row])),
            _label(sample, row),
            _prediction(sample, row),
            *(_value(values[name][place]) for name in names[:_MOST_COLUMNS]),
        ]
        more = names[_MOST_COLUMNS : _MOST_COLUMNS + _MOST_DETAILS]
        lines = [Row([Cell(name), _value(values[name][place])]) for name in more]
        others = [Column("column"), Column("value")]
        found.append(
            Row(cells, [Table("The other columns of the row", others, lines)] if lines else ())
        )
    loss = "absolute error" if regression else "loss"
    help_text = "" if regression else "-ln of the probability of the label"
    columns = [
        Column(loss, True, help_text),
        Column(f"label {label}", regression),
        Column("prediction", True, "" if regression else "probability of the predicted class"),
        *(Column(name, is_numeric(sample.rows, name)) for name in names[:_MOST_COLUMNS]),
    ]
    title = f"The {len(found)} worst rows, on {sample.of_how_many}"
    return [Table(title, columns, found)]


def _indices(order: np.ndarray):
    import pyarrow as pa

    return pa.array(order)


def _label(sample: SampledRows, row: int) -> Cell:
    value = float(sample.labels[row])
    if sample.model.kind == "regression":
        return number_cell(value)
    names = sample.model.classes
    return Cell(names[int(value)] if value < len(names) else f"{value:g}", value)


def _prediction(sample: SampledRows, row: int) -> Cell:
    p = sample.predictions[row]
    if sample.model.kind == "regression":
        return number_cell(float(p[0]))
    both = np.r_[1 - p, p] if len(p) == 1 else p
    chosen, names = int(both.argmax()), sample.model.classes
    name = names[chosen] if chosen < len(names) else str(chosen)
    return Cell(f"{name} ({both[chosen]:.4f})", float(both[chosen]))


def _value(values: object) -> Cell:
    """Return a raw value; of a list the values in order, and nothing if it is missing."""
    listed = values if isinstance(values, list) else [] if values is None else [values]
    if not listed:
        return Cell("missing", state="quiet")
    texts = [_text(each) for each in listed[:20]]
    more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
    only = listed[0] if len(listed) == 1 and isinstance(listed[0], (int, float)) else None
    return Cell(", ".join(texts) + more, None if only is None else float(only))


def _text(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
