"""The formats of data files."""

from __future__ import annotations

from typing import Literal, get_args

Source = Literal["csv", "tfrecord", "parquet", "arrow"]
SOURCES: tuple[Source, ...] = get_args(Source)

COLUMNAR: tuple[Source, ...] = ("parquet", "arrow")
"""Those whose files hold typed columns, in parts that are read separately."""

SUFFIXES: dict[str, Source] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".tfrecord": "tfrecord",
}
"""End of a file's name -> its format."""
