"""The taxi pipeline compiled for Kubeflow with a root on Google Cloud Storage, replayed there."""

from __future__ import annotations

import json
from pathlib import Path

import gcs_server
import pytest
import tfx
from command_line import TAXI, run_pipeline
from launcher_download import download_as_launcher

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

DATA = Path(tfx.__file__).parent / "examples" / "chicago_taxi_pipeline" / "data" / "simple"


@pytest.fixture
def gcs(tmp_path_factory, monkeypatch):
    """A fake Google Cloud Storage with the taxi data in it."""
    with gcs_server.serving(tmp_path_factory.mktemp("gcs")) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.put("bucket", "data/data.csv", (DATA / "data.csv").read_bytes())
        yield server


def test_every_artifact_on_gcs_can_be_downloaded_by_the_launcher(tmp_path, gcs):
    spec = tmp_path / "taxi.yaml"
    code, printed = run_pipeline(
        *("compile", "--target", "kubeflow", "--config", TAXI, "--output", spec),
        "--set=cluster.kubeflow.image=registry.example/tfx-largebatch:1.0",
        "--set=cluster.kubeflow.pipeline_root=gs://bucket/root",
        "--set=cluster.kubeflow.data_path=gs://bucket/data/data.csv",
        "--set=training.epochs=2",
    )
    assert code == 0, printed
    code, printed = run_pipeline("replay", "--spec", spec, "--root", tmp_path / "root", "--remote")
    assert code == 0, printed
    # TensorFlow wrote them below the outputs of most nodes.
    written = [r for r in gcs.requests if "uploadType=media" in r and "%2F&" in r]
    assert len(written) > 10
    objects = {name: each.content for (_, name), each in gcs.objects.items()}
    records = tmp_path / "root" / "chicago-taxi" / "artifacts.jsonl"
    artifacts = [json.loads(line) for line in records.read_text().splitlines()]
    downloaded = 0
    for number, artifact in enumerate(artifacts):
        folder = tmp_path / "downloaded" / str(number)
        download_as_launcher(objects, artifact["uri"].removeprefix("gs://bucket/"), folder)
        downloaded += folder.is_dir()
    assert downloaded > 10
