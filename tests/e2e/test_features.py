"""The chains of the taxi run's columns.

Reference: NumPy in float64 on the examples of the train split; tolerance 1e-6 relative.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import ROOT
from parquet_examples import read_rows

from transform import column_chains

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "normalisation.md").read_text("utf-8")


def examples(folder: Path) -> list[Any]:
    """The raw rows of the train split."""
    return read_rows(folder.glob("artifacts/ArrowExampleGen/examples/*/Split-train/*"))


def column(rows: list[Any], name: str) -> np.ndarray:
    """A raw number column in float64, NaN where missing."""
    return np.asarray([row[name][0] if row[name] else np.nan for row in rows], np.float64)


@pytest.fixture(scope="module")
def explained(taxi) -> dict[str, Any]:
    (graph,) = taxi.folder.glob("artifacts/Transform/transform_graph/*")
    return {chain.column: asdict(chain) for chain in column_chains(str(graph))}


def numbers(record: dict[str, Any], step: str) -> dict[str, Any]:
    (found,) = (s["numbers"] for s in record["steps"] if s["name"] == step)
    return found


def test_taxi_s_numbers_equal_numpy(taxi, explained):
    rows = examples(taxi.folder)
    latitude = column(rows, "dropoff_latitude")
    present = latitude[~np.isnan(latitude)]
    record = explained["dropoff_latitude"]
    assert record["count"] == present.size
    assert numbers(record, "impute")["value"] == pytest.approx(present.mean(), rel=1e-6)
    assert numbers(record, "scale") == {
        "mean": pytest.approx(present.mean(), rel=1e-6),
        "standard_deviation": pytest.approx(present.std(), rel=1e-6),
    }
    stamp = column(rows, "trip_start_timestamp")
    assert numbers(explained["trip_start_timestamp"], "scale") == {
        "min": stamp.min(),
        "max": stamp.max(),
    }
    minutes = np.clip(column(rows, "trip_seconds") / 60.0, 0.0, 100.0)  # a derived column
    assert numbers(explained["minutes"], "clip") == {"min": 0.0, "max": 100.0}
    assert numbers(explained["minutes"], "scale")["mean"] == pytest.approx(
        np.nanmean(minutes), rel=1e-6
    )
    companies = [row["company"] for row in rows]
    known = {values[0] for values in companies if values}
    assert numbers(explained["company"], "encode")["values"] == len(known)
    assert explained["company"]["count"] == sum(map(bool, companies))


def test_the_page_s_program_prints_the_same_chains(taxi, explained, capsys):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (graph,) = taxi.folder.glob("artifacts/Transform/transform_graph/*")
    named = f"output/taxi/{graph.relative_to(taxi.folder)}"
    assert named in program
    exec(program.replace(named, str(graph)), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"{name} {[(s['name'], s['kind'], s['numbers']) for s in record['steps']]}"
        for name, record in explained.items()
    ]
