"""`submit` to Vertex: what Google's installed client sends, and what is made of the answers.

All is as for a user who has the key of a service account, but that gcloud's own variable names a
server on loopback. The compiled file is the golden one, so that TFX is not imported.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format
from vertex_server import error, job_now

from pipeline.cli.cli import main

GOLDEN = Path(__file__).with_name("golden") / "taxi-vertex.json"
PLACE = "projects/my-project/locations/europe-west4"


@pytest.fixture
def server(vertex):
    return vertex


def submit(*arguments, spec=GOLDEN):
    return main(["submit", "--spec", str(spec), "--poll", "0.01", *map(str, arguments)])


def changed(folder, **fields):
    """The compiled file with fields of a PipelineJob changed."""
    file = folder / "job.json"
    file.write_text(json.dumps({**json.loads(GOLDEN.read_text()), **fields}))
    return file


def test_the_job_that_is_created_is_the_compiled_file(server, tmp_path, capsys):
    network = "projects/12345/global/networks/private"
    account = "trainer@my-project.iam.gserviceaccount.com"
    file = changed(tmp_path, serviceAccount=account, network=network)
    assert submit("--run-name", "nightly", spec=file) == 0
    ((name, job),) = server.jobs.items()
    assert name.startswith(f"{PLACE}/pipelineJobs/chicago-taxi-")
    compiled = json.loads(GOLDEN.read_text())
    sent = json_format.MessageToDict(type(job).pb(job))
    assert sent["pipelineSpec"] == compiled["pipelineSpec"]
    assert sent["displayName"] == "nightly"
    assert sent["labels"] == compiled["labels"]
    assert sent["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/root"
    assert (job.service_account, job.network) == (account, network)
    job_id = name.rpartition("/")[2]
    assert capsys.readouterr().out.splitlines() == [
        f"Started: job {job_id} in europe-west4 of project my-project",
        "Its page: https://console.cloud.google.com/vertex-ai/locations/europe-west4/pipelines/"
        f"runs/{job_id}?project=my-project",
    ]


def test_project_and_region_of_the_profile_come_first(server, tmp_path):
    config = yaml.safe_load(Path("examples/taxi/pipeline.yaml").read_text())
    config["cluster"] = {
        "vertex": {
            "image": "registry.example/x:1",
            "pipeline_root": "gs://bucket/root",
            "project": "other",
            "region": "us-east1",
        }
    }
    file = tmp_path / "my.yaml"
    file.write_text(yaml.safe_dump(config))
    assert submit("--config", file) == 0
    (name,) = server.jobs
    assert name.startswith("projects/other/locations/us-east1/pipelineJobs/")


def test_parameters_reach_the_job(server, tmp_path):
    spec = json.loads(GOLDEN.read_text())["pipelineSpec"]
    kinds = {"rows": "NUMBER_INTEGER", "name": "STRING"}
    spec["root"]["inputDefinitions"] = {
        "parameters": {name: {"parameterType": kind} for name, kind in kinds.items()}
    }
    file = changed(tmp_path, pipelineSpec=spec)
    assert submit("--parameter=rows=3", "--parameter=name=a", spec=file) == 0
    (job,) = server.jobs.values()
    assert dict(job.runtime_config.parameter_values) == {"rows": 3, "name": "a"}


@pytest.mark.parametrize(
    ("blessed", "code", "words"),
    [(1, 0, "Every node ran; blessed"), (0, 3, "Every node ran; not blessed: it is not pushed")],
)
def test_wait_shows_a_line_per_node_and_whether_it_is_blessed(server, capsys, blessed, code, words):
    blessing = {"outputs": {"blessing": {"artifacts": [{"metadata": {"blessed": blessed}}]}}}
    server.polls = [
        job_now("PENDING"),
        job_now("RUNNING", ArrowExampleGen="SKIPPED", Trainer="PENDING"),
        job_now("RUNNING", ArrowExampleGen="SKIPPED", Trainer="RUNNING"),
        job_now(
            "SUCCEEDED",
            ArrowExampleGen="SKIPPED",
            Trainer="SUCCEEDED",
            Evaluator=("SUCCEEDED", blessing),
            Pusher="SUCCEEDED",
        ),
    ]
    assert submit("--wait") == code
    lines = [line.partition("] ")[2] or line for line in capsys.readouterr().out.splitlines()[2:]]
    assert lines == [
        "ArrowExampleGen: cached in 1 min 00 s",
        "Trainer: done in 2 min 00 s",
        "Evaluator: done in 3 min 00 s",
        "Pusher: done in 4 min 00 s",
        "",
        words,
    ]


def test_a_failed_node_is_told_in_its_own_words(server, capsys):
    failure = {
        "error": {"code": 9, "message": "The replica workerpool0-0 exited with a non-zero status."},
        "executor_detail": {"container_detail": {"main_job": f"{PLACE}/customJobs/4711"}},
    }
    server.polls = [
        job_now(
            "FAILED",
            "The DAG failed because some tasks failed: [Trainer]",
            Transform="SUCCEEDED",
            Trainer=("FAILED", failure),
            Evaluator="NOT_TRIGGERED",
        )
    ]
    assert submit("--wait") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-6:-1] == [
        "",
        "Trainer failed after 2 min 00 s:",
        "The replica workerpool0-0 exited with a non-zero status.",
        "Its log: gcloud logging read resource.labels.job_id=4711",
        "The DAG failed because some tasks failed: [Trainer]",
    ]
    assert not any("Evaluator" in line for line in told)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            error(403, "PERMISSION_DENIED", "Permission 'aiplatform.pipelineJobs.create' denied"),
            ["403 Permission 'aiplatform.pipelineJobs.create' denied", "roles/aiplatform.user"],
        ),
        (
            error(404, "NOT_FOUND", "Network projects/1/global/networks/x was not found"),
            ["404 Network projects/1", "cluster.vertex.project and cluster.vertex.region"],
        ),
        (
            error(400, "INVALID_ARGUMENT", "NVIDIA_TESLA_T5 is not supported"),
            ["400 NVIDIA_TESLA_T5 is not supported", "cluster.vertex.resources"],
        ),
        (error(401, "UNAUTHENTICATED", "invalid credentials"), ["401", "application-default"]),
        (error(429, "RESOURCE_EXHAUSTED", "Quota exceeded"), ["429 Quota exceeded", "try again"]),
    ],
)
def test_server_errors_are_translated(server, capsys, answer, words):
    server.failures["POST /v1/projects"] = answer
    assert submit() == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("vertex: cannot create the job: ")
    assert "Traceback" not in told.err
    for each in words:
        assert each in told.err


def test_a_busy_server_is_reported(server, capsys):
    server.failures["POST /v1/projects"] = error(503, "UNAVAILABLE", "try later")
    assert submit() == 2
    assert "503 try later. Vertex' own failure" in capsys.readouterr().err


def test_what_is_lacking_on_this_machine_is_told(server, capsys, monkeypatch, tmp_path):
    assert submit("--parameter=x=1") == 2
    assert "no parameter of this name; it has none of its own" in capsys.readouterr().err
    assert submit("--experiment", "taxi") == 2
    assert "jobs of Vertex are grouped by cluster.vertex.labels" in capsys.readouterr().err
    monkeypatch.delenv("GOOGLE_CLOUD_REGION")
    assert submit() == 2
    assert "no region: name it as cluster.vertex.region" in capsys.readouterr().err
    monkeypatch.setenv("GOOGLE_CLOUD_REGION", "europe-west4")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    assert submit() == 2
    assert "gcloud auth application-default login" in capsys.readouterr().err
    assert not server.requests


def test_a_file_that_is_no_job_is_told(server, tmp_path, capsys):
    assert submit(spec=changed(tmp_path, machines=3)) == 2
    assert 'no field named "machines"' in capsys.readouterr().err
