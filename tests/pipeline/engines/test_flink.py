"""The pipeline on a real Flink cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from attribution_files import check_attributions
from flink import FlinkCluster

from .conftest import ROOT, TAXI

pytestmark = pytest.mark.flink


@pytest.mark.timeout(900)
def test_the_whole_taxi_pipeline(flink: FlinkCluster, tmp_path: Path):
    """Every Beam node on Flink; the model reaches the thresholds of the example."""
    settings = (
        "beam.engine=flink",
        f"beam.options=[{', '.join(flink.options())}]",
        f"output.folder={tmp_path}",
        "explain={rows: 1200, steps: 10}",
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pipeline", "run", "--config", str(TAXI)),
            *(f"--set={setting}" for setting in settings),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "blessed: every threshold holds" in done.stdout
    assert "15,002 rows" in done.stdout
    (attributions,) = tmp_path.glob("artifacts/InputGradients/attributions/*")
    check_attributions(attributions, rows=1200)
    assert flink.overview()["jobs-finished"] >= 6  # the Beam nodes
