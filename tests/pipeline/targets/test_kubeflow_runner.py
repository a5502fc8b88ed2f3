"""TFX's own command line compiles through pipeline/kubeflow_runner.py what `compile` writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from compiled_taxi import BUCKETS, ROOT, TAXI
from tfx.tools.cli.cli_main import cli_group  # what the console script `tfx` calls

from pipeline.config.config_file import load_config
from pipeline.targets.compile import compile_pipeline

pytestmark = pytest.mark.slow

RUNNER = ROOT / "pipeline" / "kubeflow_runner.py"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The taxi pipeline with both profiles, named as a user names it; the folder is the test's."""
    text = yaml.safe_load(TAXI.read_text())
    text["cluster"] = {
        target: {
            "image": "registry.example/tfx-largebatch:1.0",
            "pipeline_root": f"{place}/root",
            "data_path": f"{place}/data/data.csv",
        }
        for target, place in BUCKETS.items()
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(text))
    monkeypatch.setenv("TFX_LARGEBATCH_CONFIG", str(file))
    monkeypatch.setenv("VERTEX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")  # tfx calls `pip`
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return load_config(file)


def tfx(*arguments):
    """Returns what `tfx` ends with, and what it prints."""
    done = CliRunner().invoke(cli_group, [*arguments, "--pipeline_path", str(RUNNER)])
    return done, done.output


@pytest.mark.parametrize(("target", "suffix"), [("vertex", ".json"), ("kubeflow", ".yaml")])
def test_pipeline_compile_writes_the_bytes_of_compile(
    config, target, suffix, monkeypatch, tmp_path
):
    monkeypatch.setenv("TFX_LARGEBATCH_TARGET", target)
    done, printed = tfx("pipeline", "compile", "--engine", "vertex")
    assert done.exit_code == 0, printed
    assert "Pipeline chicago-taxi compiled successfully." in printed
    file = f"chicago-taxi-{target}{suffix}"
    assert (tmp_path / file).read_text() == compile_pipeline(config, target)
    # Nothing else is written; TFX would make a folder of metadata, called `gs:` or `s3:` here.
    assert {each.name for each in tmp_path.iterdir()} == {"pipeline.yaml", file}


def test_pipeline_create_keeps_it_for_run_create(config, monkeypatch, tmp_path):
    done, printed = tfx("pipeline", "create", "--engine", "vertex")
    assert done.exit_code == 0, printed
    assert 'Pipeline "chicago-taxi" created successfully.' in printed
    kept = tmp_path / "home" / "chicago-taxi" / "pipeline.json"
    assert kept.read_text() == compile_pipeline(config, "vertex")
    monkeypatch.setenv("TFX_LARGEBATCH_TARGET", "kubeflow")
    done, printed = tfx("pipeline", "update", "--engine", "vertex")
    assert done.exit_code == 1
    assert "`tfx run create` sends to Vertex; use `tfx pipeline compile`" in str(done.exception)
    monkeypatch.setenv("TFX_LARGEBATCH_TARGET", "vertexx")
    done, printed = tfx("pipeline", "compile", "--engine", "vertex")
    assert isinstance(done.exception, SystemExit)
    assert "TFX_LARGEBATCH_TARGET=vertexx: use kubeflow or vertex." in printed
