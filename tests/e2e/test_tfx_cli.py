"""TFX's own command line creates and runs the pipeline through pipeline/local_runner.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TFX = Path(sys.executable).with_name("tfx")


def test_pipeline_create_and_run_create(taxi, command, tmp_path):
    config = yaml.safe_load((ROOT / "examples" / "taxi" / "pipeline.yaml").read_text())
    # The folder of the run that the other tests look at: its nodes come from the cache.
    config["output"]["folder"] = str(taxi.folder)
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(config))
    environment = {
        "TFX_LARGEBATCH_CONFIG": str(file),
        "LOCAL_HOME": str(tmp_path / "home"),
        "PATH": f"{TFX.parent}:/usr/bin:/bin",  # as after activation: tfx calls `pip`
    }

    created = command(
        *(TFX, "pipeline", "create", "--engine", "local"),
        *("--pipeline_path", "pipeline/local_runner.py"),
        environment=environment,
    )
    assert created.code == 0, created.output
    assert 'Pipeline "chicago-taxi" created successfully.' in created.output

    run = command(
        *(TFX, "run", "create", "--engine", "local", "--pipeline_name", "chicago-taxi"),
        environment=environment,
    )
    assert run.code == 0, run.output
    assert "Trainer: cached" in run.output
    assert "blessed: every threshold holds" in run.output
