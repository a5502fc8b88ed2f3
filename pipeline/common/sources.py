"""The formats of data files."""

from __future__ import annotations

from typing import Literal, get_args

Source = Literal["csv", "tfrecord", "parquet"]
SOURCES: tuple[Source, ...] = get_args(Source)
