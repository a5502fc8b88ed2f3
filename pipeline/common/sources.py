"""The formats of data files."""

from __future__ import annotations

from typing import Literal, get_args

Source = Literal["csv", "tfrecord", "parquet", "arrow"]
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
}
"""File extension -> format."""
