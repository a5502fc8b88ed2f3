"""A folder of Parquet files, as Spark writes it, below a folder whose name looks like a pattern."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.cli.cli import main

pytestmark = pytest.mark.slow(60)


def write_year(folder: Path, year: int, rows: int) -> None:
    random = np.random.default_rng(year)
    x = random.normal(size=rows)
    table = {"x": x, "town": random.choice(["Oslo", "Lima"], rows), "y": (x > 0).astype(int)}
    (folder / f"year={year}").mkdir(parents=True)
    pq.write_table(pa.table(table), folder / f"year={year}" / "part-0.parquet")
    (folder / f"year={year}" / ".part-0.parquet.crc").write_text("torn")
    (folder / "_SUCCESS").touch()


def test_run_predict_and_explain(tmp_path, capfd, pipeline):
    folder = tmp_path / "a[1] {x}*"
    for year in (2020, 2021):
        write_year(folder / "sales", year, 60)
    write_year(folder / "held", 2022, 40)
    (folder / "sales" / "_temporary").mkdir()
    (folder / "sales" / "_temporary" / "0.parquet").write_text("torn")
    groups = [
        {"name": "numbers", "columns": ["x", "year"], "scale": "z_score"},
        {"name": "texts", "columns": ["town"], "encode": "vocabulary"},
    ]
    config = {
        "name": "small",
        "data": {"path": "sales", "source": "parquet", "eval_path": "held"},
        "features": {"groups": groups, "label": {"column": "y", "kind": "binary"}},
        "normalization": {"on_failure": "warn"},
        "training": {"global_batch_size": 20, "epochs": 1},
        "evaluation": {
            "thresholds": {"auc": {"lower_bound": 0.0}},
            "require_better_than_constant": False,
        },
        "output": {"folder": "out"},
    }
    file = folder / "p.yaml"
    file.write_text(yaml.safe_dump(config))
    assert main(["run", "--config", str(file)]) == 2
    assert f"output.folder={folder / 'out'}" in capfd.readouterr().err
    out = tmp_path / "out"
    result = pipeline("run", "--config", file, f"--set=output.folder={out}", "--quiet")
    assert result.code == 0, result.output
    printed = [line for line in result.output.splitlines() if not line.startswith("warning: ")]
    assert [line.split()[0].rstrip(":") for line in printed] == ["blessed", "pushed"]
    model = str(out / "serving_model")
    found = {}
    for data in ("held", "held/year=*/*.parquet"):
        output = tmp_path / "predictions.csv"
        source = ["--data", str(folder / data), "--output", str(output)]
        assert main(["predict", "--model", model, *source]) == 0
        with output.open(newline="") as stream:
            found[data] = list(csv.DictReader(stream))
    assert found["held"] == found["held/year=*/*.parquet"]
    assert [row["year"] for row in found["held"]] == ["2022"] * 40
    capfd.readouterr()
    assert main(["features", "explain", "--config", str(out)]) == 0
    assert "year" in capfd.readouterr().out
