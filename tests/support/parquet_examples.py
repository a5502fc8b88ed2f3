"""The Parquet files of an Examples artifact, read with nothing of ours."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def read_rows(files: Iterable[Path]) -> list[dict[str, list[Any]]]:
    """Returns rows: column -> values, none where one is missing."""
    return [
        {name: values or [] for name, values in row.items()}
        for file in sorted(files)
        for row in pq.read_table(file).to_pylist()
    ]


def read_splits(examples: Path) -> dict[str, list[dict[str, list[Any]]]]:
    """Returns the rows of each split of an artifact's folder."""
    return {
        split.name.removeprefix("Split-"): read_rows(split.iterdir())
        for split in examples.glob("Split-*")
    }
