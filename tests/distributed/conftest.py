"""Launches of several workers, each of which many tests read."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import files_of_rows
import parquet_files
import pytest
import small_transform
from on_workers import on_workers

from trainer_module.devices.strategies import configure_logical_devices, create_strategy

# Before the first operation of the process: the references have as many replicas as the workers.
configure_logical_devices(4)

ROWS = 101  # no number of replicas or files divides them


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """The same number of rows in 1 and 3 files, by that number."""
    parent = tmp_path_factory.mktemp("rows")
    return {
        files: files_of_rows.write(parent / str(files), files=files, rows=ROWS) for files in (1, 3)
    }


@pytest.fixture(scope="session")
def one_process():
    """Strategies of this process by their number of replicas."""
    return {
        1: create_strategy("one_device"),
        **{n: create_strategy("mirrored", logical_devices=n) for n in (2, 4)},
    }


@pytest.fixture(scope="session")
def several(folders):
    """A function from (workers, devices of each) to the results of each worker, by check."""
    # One launch per layout runs all checks of the layout.
    checks = {
        (2, 1): ["matrix:0:9", "whole_batches", "other_mean"],
        (2, 2): ["matrix:3:9"],
        (3, 1): ["matrix:6:9"],
    }
    for names in checks.values():
        names += [f"evaluation:{folders[3]}", "not_finite", "row_gradients"]
        names += [f"seen:{folder}:{batch}:30" for folder in folders.values() for batch in (7, 40)]

    @functools.cache
    def results(workers: int, devices: int):
        found = on_workers("checks", devices, *checks[workers, devices], workers=workers)
        return [dict(each) for each in found]

    return results


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """A Transform output with packed features in Parquet files: graph, train, eval."""
    folder = tmp_path_factory.mktemp("packed")
    made = small_transform.run_transform(folder, small_transform.packed_preprocessing_fn)
    assets = Path(made.graph) / "transform_fn" / "assets"
    (assets / "feature_layout").write_text(json.dumps(small_transform.PACKED_LAYOUT))
    made = parquet_files.as_parquet(made, folder / "parquet")
    return {"graph": made.graph, "train": made.train, "eval": made.eval}
