"""The formats of data files, by name."""

from __future__ import annotations

from typing import Literal, get_args

Source = Literal["csv", "tfrecord", "parquet", "arrow", "images"]
SOURCES: tuple[Source, ...] = get_args(Source)

COLUMNAR: tuple[Source, ...] = ("parquet", "arrow")
"""Formats whose files have typed columns, in parts that can be read separately."""

SUFFIXES: dict[str, Source] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".tfrecord": "tfrecord",
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"), "images"),
}
"""File extension -> format."""


def unknown_format(path: str) -> str:
    """Return the message about a file whose name does not say its format."""
    if path.lower().endswith((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")):
        return f"--data={path}: a spreadsheet. Save its table as CSV (in UTF-8) and name that file."
    if path.lower().endswith((".json", ".jsonl", ".ndjson")):
        return f"--data={path}: JSON. Write its rows as CSV or Parquet and name that file."
    return f"--data={path}: unknown format; add --source {', '.join(SOURCES)}"
