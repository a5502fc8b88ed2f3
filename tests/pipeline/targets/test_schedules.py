"""`submit --schedule` and `schedules`, on servers that speak the APIs of the installed clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format
from loopback import Answer

from pipeline.cli.cli import main

GOLDEN = Path(__file__).with_name("golden")
FILES = {"kubeflow": "taxi-kubeflow.yaml", "vertex": "taxi-vertex.json"}
PLACE = "projects/my-project/locations/europe-west4"


@pytest.fixture(params=list(FILES))
def target(request):
    return request.param


@pytest.fixture
def server(target, request):
    return request.getfixturevalue(target)


def submit(target, *arguments, cron="0 3 * * MON-FRI"):
    return main(["submit", "--spec", str(GOLDEN / FILES[target]), "--schedule", cron, *arguments])


def schedules(action, target, *arguments):
    return main(["schedules", action, "--target", target, *arguments])


def states(target, server):
    if target == "kubeflow":
        return {run.display_name: run.status for run in server.recurring.values()}
    return {each.display_name: each.state.name for each in server.schedules.values()}


def test_a_schedule_on_kubeflow_runs_the_uploaded_version(kubeflow, tmp_path, capsys):
    config = yaml.safe_load(Path("examples/taxi/pipeline.yaml").read_text())
    place = {"image": "registry.example/x:1", "pipeline_root": "s3://bucket/root"}
    config["cluster"] = {"kubeflow": {**place, "service_account": "trainer"}}
    file = tmp_path / "my.yaml"
    file.write_text(yaml.safe_dump(config))
    given = ("--config", str(file), "--run-name", "nightly run", "--experiment", "taxi")
    assert submit("kubeflow", *given) == 0
    (run,) = kubeflow.recurring.values()
    assert run.display_name == "nightly run"
    assert run.trigger.cron_schedule.cron == "0 0 3 * * 1,2,3,4,5"
    assert (run.mode, run.no_catchup, int(run.max_concurrency)) == ("ENABLE", True, 1)
    assert run.service_account == "trainer"
    assert run.runtime_config.pipeline_root == "s3://bucket/root"
    assert kubeflow.experiments[run.experiment_id].display_name == "taxi"
    version = run.pipeline_version_reference.pipeline_version_id
    assert kubeflow.uploaded[version] == (GOLDEN / FILES["kubeflow"]).read_bytes()
    assert not kubeflow.runs
    assert capsys.readouterr().out.splitlines() == [
        "Uploaded: pipeline chicago-taxi, new",
        "Scheduled: nightly run in experiment taxi, at 0 3 * * 1,2,3,4,5 in the server's time zone",
        f"Its page: {kubeflow.url}/#/recurringrun/details/recurring-1",
        "To stop it: python -m pipeline schedules pause --target kubeflow 'nightly run'",
    ]


def test_a_schedule_on_vertex_creates_the_compiled_job(vertex, capsys):
    assert submit("vertex", "--timezone", "Europe/Berlin") == 0
    ((name, schedule),) = vertex.schedules.items()
    assert name == f"{PLACE}/schedules/1"
    assert schedule.display_name == "chicago-taxi"
    assert schedule.cron == "TZ=Europe/Berlin 0 3 * * 1,2,3,4,5"
    assert schedule.max_concurrent_active_run_count == 1
    job = schedule.create_pipeline_job_request.pipeline_job
    sent = json_format.MessageToDict(type(job).pb(job))
    compiled = json.loads((GOLDEN / FILES["vertex"]).read_text())
    assert sent["pipelineSpec"] == compiled["pipelineSpec"]
    assert sent["labels"] == compiled["labels"]
    assert sent["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/root"
    assert not vertex.jobs
    assert capsys.readouterr().out.splitlines() == [
        "Scheduled: chicago-taxi in europe-west4 of project my-project, at 0 3 * * 1,2,3,4,5 "
        "(Europe/Berlin)",
        "Its page: https://console.cloud.google.com/vertex-ai/locations/europe-west4/pipelines/"
        "schedules/1?project=my-project",
        "To stop it: python -m pipeline schedules pause --target vertex chicago-taxi",
    ]


def test_a_schedule_is_listed_paused_resumed_and_deleted(target, server, capsys):
    paused, active = {"kubeflow": ("DISABLED", "ENABLED"), "vertex": ("PAUSED", "ACTIVE")}[target]
    assert submit(target) == submit(target, "--run-name", "weekly", cron="0 3 * * 7") == 0
    capsys.readouterr()
    assert schedules("pause", target, "weekly") == 0
    assert states(target, server) == {"chicago-taxi": active, "weekly": paused}
    out = capsys.readouterr().out
    schedule_id = out.partition("(")[2].rstrip(")\n")
    assert out == f"Paused: weekly ({schedule_id})\n"
    assert schedules("list", target) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    next_run = ["next", "run"] if target == "vertex" else []
    assert header.split() == ["name", "cron", "state", *next_run, "id"]
    assert "  0 3 * * 1,2,3,4,5  " in first
    assert first.startswith("chicago-taxi  ")
    assert " active  " in first
    assert second.startswith("weekly  ")
    assert " paused  " in second
    assert second.endswith(f"  {schedule_id}")
    if target == "vertex":
        assert "  2026-11-25 03:00 UTC  " in first
    assert schedules("resume", target, schedule_id) == 0  # an id is as good as a name
    assert states(target, server)["weekly"] == active
    assert schedules("delete", target, "weekly") == 0
    assert states(target, server) == {"chicago-taxi": active}


def test_all_pages_of_a_list_are_read(target, server, capsys):
    for number in range(5):
        assert submit(target, "--run-name", f"number-{number}") == 0
    server.page_size = 2
    capsys.readouterr()
    assert schedules("list", target) == 0
    assert sum("number-" in line for line in capsys.readouterr().out.splitlines()) == 5


def test_no_schedule_and_unknown_names_are_reported(target, server, capsys):
    assert schedules("list", target) == 0
    assert capsys.readouterr().out == "No schedules.\n"
    assert submit(target) == 0
    assert schedules("delete", target, "weekly") == 2
    told = capsys.readouterr().err
    assert "no schedule has the name or id weekly; there are: chicago-taxi." in told
    assert len(states(target, server)) == 1


def test_a_second_schedule_of_a_name_is_refused(target, server, capsys):
    assert submit(target) == 0
    assert submit(target, cron="0 4 * * *") == 2
    told = capsys.readouterr().err
    assert "there is a schedule named chicago-taxi (active, " in told
    assert f"schedules delete --target {target} chicago-taxi" in told
    assert len(states(target, server)) == 1


def test_schedules_that_share_a_name_are_told_apart_by_their_ids(kubeflow, capsys):
    """KFP's pages let people create two of one name."""
    assert submit("kubeflow") == submit("kubeflow", "--run-name", "b") == 0
    kubeflow.recurring["recurring-2"].display_name = "chicago-taxi"
    assert schedules("delete", "kubeflow", "chicago-taxi") == 2
    assert "2 schedules are named chicago-taxi; give an id: recurring-1, recurring-2" in (
        capsys.readouterr().err
    )
    assert schedules("delete", "kubeflow", "recurring-2") == 0
    assert list(kubeflow.recurring) == ["recurring-1"]


def test_options_that_contradict_a_schedule_are_refused(target, server, capsys):
    assert submit(target, cron="0 3 * *") == 2
    assert "has 4 fields" in capsys.readouterr().err
    assert submit(target, "--wait") == 2
    assert "no run to wait for with --schedule" in capsys.readouterr().err
    assert main(["submit", "--spec", "x", "--timezone", "UTC"]) == 2
    assert "--timezone is of --schedule" in capsys.readouterr().err
    if target == "kubeflow":
        assert submit(target, "--timezone", "Europe/Berlin") == 2
        assert "CRON_SCHEDULE_TIMEZONE" in capsys.readouterr().err
    else:
        assert submit(target, "--experiment", "taxi") == 2
        assert "jobs of Vertex are grouped by cluster.vertex.labels" in capsys.readouterr().err
    assert not states(target, server)


def test_parameters_reach_the_runs_of_a_schedule(target, server, tmp_path):
    documents = list(yaml.safe_load_all((GOLDEN / FILES[target]).read_text()))
    spec = documents[0].get("pipelineSpec", documents[0])
    spec["root"]["inputDefinitions"] = {"parameters": {"rows": {"parameterType": "NUMBER_INTEGER"}}}
    file = tmp_path / "compiled.yaml"
    file.write_text(json.dumps(documents[0]))
    given = ["submit", "--spec", str(file), "--schedule", "0 3 * * *", "--parameter", "rows=3"]
    assert main(given) == 0
    if target == "kubeflow":
        (run,) = server.recurring.values()
        assert run.runtime_config.parameters == {"rows": 3}
    else:
        (schedule,) = server.schedules.values()
        job = schedule.create_pipeline_job_request.pipeline_job
        assert dict(job.runtime_config.parameter_values) == {"rows": 3}


def test_failures_of_a_server_are_reported(target, server, capsys):
    assert submit(target) == 0
    capsys.readouterr()
    place = {"kubeflow": "/apis/v2beta1/recurringruns", "vertex": f"/v1/{PLACE}/schedules"}[target]
    for answer, message in (
        (Answer({"error": {"code": 403, "message": "not yours \x1b"}}, 403), "403"),
        (Answer(b"<h1>Sign in</h1>"), "answers with no JSON object but 'Sign in'"),
        (Answer({"error": "busy"}, 503), "503"),
    ):
        server.failures = {f"{verb} {place}": answer for verb in ("GET", "POST", "DELETE")}
        for action in ("list", "pause", "resume", "delete"):
            assert schedules(action, target, *(["x"] if action != "list" else [])) == 2
            told = capsys.readouterr().err
            assert told.startswith(f"{target}: ")
            assert message in told
            assert "\x1b" not in told
        assert submit(target) == 2
        assert message in capsys.readouterr().err
