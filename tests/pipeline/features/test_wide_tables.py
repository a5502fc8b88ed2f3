"""Which tables count as wide, and what `init` writes for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.cli.cli import main
from pipeline.config.config_file import load_config
from pipeline.features.wide_tables import is_wide


@pytest.mark.parametrize(
    ("rows", "columns", "wide"),
    [
        *((201, 750, True), (200, 50, True), (201, 50, False), (120, 49, False)),
        *((455, 30, False), (1_437, 64, False), (3_000, 750, True), (3_001, 750, False)),
    ],
)
def test_wide_is_four_rows_for_a_column_or_fewer(rows: int, columns: int, wide: bool) -> None:
    assert is_wide(rows, columns) == wide


@pytest.mark.parametrize(("constant", "wide"), [(0, True), (50, False)])
def test_init_writes_a_small_model(tmp_path: Path, constant: int, wide: bool) -> None:
    """Columns that are left out do not count."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(120, 80))).rename(columns=lambda i: f"x{i}")
    frame.iloc[:, :constant] = 1.5
    frame["y"] = (frame["x70"] + random.normal(size=120) > 0).astype(int)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    output = tmp_path / "t.yaml"
    command = ["init", "--data", str(tmp_path / "t.parquet"), "--label", "y"]
    assert main([*command, "--output", str(output)]) == 0
    training = load_config(output).training
    assert (training.model.hidden_units == (16,)) == wide
    assert (training.model.knots == 0) == wide
    assert (training.optimizer.weight_decay == 2.0) == wide
