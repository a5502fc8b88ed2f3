"""The pipeline on a real Flink cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from attribution_files import check_attributions
from flink import FlinkCluster
from tfx.types import standard_artifacts

from components import Attributions
from components.input_gradients.executor import Executor
from pipeline.config.config_file import load_config
from pipeline.engines.engine import BeamConfig
from pipeline.report.records import latest_run_of

from .conftest import ROOT, TAXI

pytestmark = pytest.mark.flink


def attribute(run: Path, beam: BeamConfig, folder: Path) -> Path:
    """Run InputGradients of a run again on another engine; return the artifact's folder."""
    records = latest_run_of(load_config(TAXI, [f"output.folder={run}"]))
    examples, model, output = (
        standard_artifacts.Examples(),
        standard_artifacts.Model(),
        Attributions(),
    )
    output.uri = str(folder)
    for artifact, found in (
        (examples, records["ArrowExampleGen"].get("examples")),
        (model, records["Trainer"].get("model")),
    ):
        assert found is not None
        artifact.uri = found.uri
        for name in {"payload_format", "file_format"} & found.properties.keys():
            artifact.set_string_custom_property(name, str(found.properties[name]))
    examples.split_names = '["train", "eval"]'
    options = {"rows": 1200, "steps": 10, "split": "eval"}
    Executor(Executor.Context(beam_pipeline_args=beam.pipeline_args())).Do(
        {"examples": [examples], "model": [model]},
        {"attributions": [output]},
        options,
    )
    return folder


@pytest.mark.timeout(900)
def test_the_whole_taxi_pipeline(flink: FlinkCluster, tmp_path: Path):
    """Every Beam node on Flink; the model reaches the thresholds of the example.

    The attributions are those of two processes, bit for bit.
    """
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
    two = BeamConfig(engine="multi_processing", workers=2)
    again = attribute(tmp_path, two, tmp_path / "again")
    for file in ("rows/rows.parquet", "summary.json"):
        assert (again / file).read_bytes() == (attributions / file).read_bytes()
    assert flink.overview()["jobs-finished"] >= 6  # the Beam nodes
