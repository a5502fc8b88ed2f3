"""A small, correct pipeline YAML to break in one place at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROWS = 60


def csv_text(rows: int = ROWS) -> str:
    """Rows with a number, an integer, a text and a 0/1 label that follows the number."""
    lines = ["amount,age,city,bought"]
    for i in range(rows):
        amount = "" if i % 7 == 3 else f"{(i * 37) % 50}.5"
        lines.append(f"{amount},{20 + i % 40},{('Oslo', 'Lima', 'Kyoto')[i % 3]},{i % 2}")
    return "\n".join(lines) + "\n"


def config_of(folder: Path) -> dict[str, Any]:
    """The YAML of a pipeline on `rows.csv` beside it, as a mapping."""
    return {
        "name": "small",
        "data": {"path": "rows.csv"},
        "features": {
            "groups": [
                {"name": "numbers", "columns": ["amount", "age"], "scale": "z_score"},
                {"name": "texts", "columns": ["city"], "encode": "vocabulary"},
            ],
            "label": {"column": "bought", "kind": "binary"},
        },
        "training": {"global_batch_size": 16, "epochs": 1},
        "evaluation": {"metrics": ["auc"]},
        "output": {"folder": str(folder / "out")},
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows.csv and pipeline.yaml, the YAML changed by a function, and returns its path."""

    def write(
        change: Callable[[dict[str, Any]], object] = lambda config: None, *, csv: str | None = None
    ) -> Path:
        config = config_of(tmp_path)
        change(config)
        (tmp_path / "rows.csv").write_text(csv_text() if csv is None else csv)
        file = tmp_path / "pipeline.yaml"
        file.write_text(yaml.safe_dump(config, sort_keys=False))
        return file

    return write
