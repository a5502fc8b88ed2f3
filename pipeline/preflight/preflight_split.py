"""Check that rows can be split as `data.split` says, before anything runs."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pipeline.common.errors import ConfigError
from pipeline.config.config import PipelineConfig
from pipeline.preflight.part import Part
from shared_core.nearest import nearest_column

_MOST_CLASSES = 1_000


def check_split(config: PipelineConfig, part: Part) -> None:
    """Check the column by which rows are split, and that no split is empty.

    Raises:
        ConfigError: Names the column or the split, and the number of rows.
    """
    if part.split != "all":
        return
    if part.data.split.by not in ("content", "row"):
        _check_column(config, part)
    if not part.splits_known:
        return
    rows = part.seen.rows
    counts = Counter(part.split_of(np.arange(rows)).tolist())
    empty = [name for name in part.splits if not counts[name]]
    if empty:
        shares = ", ".join(f"{name} {counts[name]:,}" for name in part.splits)
        raise ConfigError(
            f"data.path={part.path}: none of its {rows:,} rows comes into the {empty[0]} split "
            f"(data.split.by={part.data.split.by}; rows: {shares}). Add rows, change "
            "data.eval_percent, data.test_percent or data.split, or name files for evaluation in "
            "data.eval_path."
        )


def _check_column(config: PipelineConfig, part: Part) -> None:
    by, name = part.data.split.by, part.column
    if name is None:
        return
    field = "data.split.column" if part.data.split.column else "data.split.by=stratified: the label"
    if name not in part.seen.columns:
        but = () if by == "stratified" else (config.label.column,)
        raise ConfigError(
            f"{field} {name!r} is not a column of {part.path}, whose rows are split before "
            f"features.derive sees them; {nearest_column(name, part.seen.columns, but=but)}"
        )
    what = f"{field}: column {name!r} of {part.path}"
    kind = part.seen.columns[name]
    if by == "stratified" and (_label_is_number(config, name) or kind == "float"):
        raise ConfigError(
            f"{what} is a number on a scale, and by: stratified gives each split its share of each "
            "class. Use by: row, or name a column of classes."
        )
    if by == "group" and kind not in ("int", "string"):
        raise ConfigError(
            f"{what} is of type {kind}, and by: group takes whole numbers or texts. Name another."
        )
    values = part.values(name)
    missing = int((~values.present).sum())
    if missing:
        raise ConfigError(
            f"{what} is missing in {missing:,} of {len(values.present):,} rows read, so that "
            "their split is unknown. Give these rows a value, leave them out of the data, or split "
            "by another column."
        )
    held = values.first(values.present).to_pylist()
    if by == "time" and kind == "string":
        from components.arrow_example_gen.splitting import check_forms, instants

        try:
            check_forms(instants(values.first(values.present)).forms)
        except ValueError as error:
            raise ConfigError(f"{what} {error}") from None
    if by == "stratified" and len(set(held)) > _MOST_CLASSES:
        raise ConfigError(
            f"{what} has {len(set(held)):,} different values in {len(held):,} rows, too many for "
            "classes. Use by: row, or name another column."
        )


def _label_is_number(config: PipelineConfig, column: str) -> bool:
    return column == config.label.column and config.label.kind == "regression"
