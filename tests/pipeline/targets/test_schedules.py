"""`submit --schedule` and `schedules`, on servers that speak the APIs of the installed clients."""

from __future__ import annotations

import json

from compiled_taxi import FILES
from google.protobuf import json_format
from loopback import Answer
from submitting import API, PLACE, user_yaml
from submitting import submit as submit_now

from pipeline.cli.cli import main


def submit(platform, *arguments, cron="0 3 * * MON-FRI"):
    return submit_now(platform, "--schedule", cron, *arguments)


def schedules(action, platform, *arguments):
    return main(["schedules", action, "--target", platform, *arguments])


def states(platform, server):
    if platform == "kubeflow":
        return {run.display_name: run.status for run in server.recurring.values()}
    return {each.display_name: each.state.name for each in server.schedules.values()}


def test_a_schedule_on_kubeflow_runs_the_uploaded_version(kubeflow, tmp_path, capsys):
    file = user_yaml(tmp_path, "kubeflow", service_account="trainer")
    given = ("--config", file, "--run-name", "nightly run", "--experiment", "taxi")
    assert submit("kubeflow", *given) == 0
    (run,) = kubeflow.recurring.values()
    assert run.display_name == "nightly run"
    assert run.trigger.cron_schedule.cron == "0 0 3 * * 1,2,3,4,5"
    assert (run.mode, run.no_catchup, int(run.max_concurrency)) == ("ENABLE", True, 1)
    assert run.service_account == "trainer"
    assert run.runtime_config.pipeline_root == "s3://bucket/root"
    assert kubeflow.experiments[run.experiment_id].display_name == "taxi"
    version = run.pipeline_version_reference.pipeline_version_id
    assert kubeflow.uploaded[version] == FILES["kubeflow"].read_bytes()
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
    compiled = json.loads(FILES["vertex"].read_text())
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


def test_a_schedule_is_listed_paused_resumed_and_deleted(platform, server, capsys):
    paused, active = {"kubeflow": ("DISABLED", "ENABLED"), "vertex": ("PAUSED", "ACTIVE")}[platform]
    assert submit(platform) == submit(platform, "--run-name", "weekly", cron="0 3 * * 7") == 0
    capsys.readouterr()
    assert schedules("pause", platform, "weekly") == 0
    assert states(platform, server) == {"chicago-taxi": active, "weekly": paused}
    out = capsys.readouterr().out
    schedule_id = out.partition("(")[2].rstrip(")\n")
    assert out == f"Paused: weekly ({schedule_id})\n"
    assert schedules("list", platform) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    next_run = ["next", "run"] if platform == "vertex" else []
    assert header.split() == ["name", "cron", "state", *next_run, "id"]
    assert "  0 3 * * 1,2,3,4,5  " in first
    assert first.startswith("chicago-taxi  ")
    assert " active  " in first
    assert second.startswith("weekly  ")
    assert " paused  " in second
    assert second.endswith(f"  {schedule_id}")
    if platform == "vertex":
        assert "  2026-11-25 03:00 UTC  " in first
    assert schedules("resume", platform, schedule_id) == 0  # an id is as good as a name
    assert states(platform, server)["weekly"] == active
    assert schedules("delete", platform, "weekly") == 0
    assert states(platform, server) == {"chicago-taxi": active}


def test_all_pages_of_a_list_are_read(platform, server, capsys):
    for number in range(5):
        assert submit(platform, "--run-name", f"number-{number}") == 0
    server.page_size = 2
    capsys.readouterr()
    assert schedules("list", platform) == 0
    assert sum("number-" in line for line in capsys.readouterr().out.splitlines()) == 5


def test_names_that_are_unknown_or_taken_are_refused(platform, server, capsys):
    assert schedules("list", platform) == 0
    assert capsys.readouterr().out == "No schedules.\n"
    assert submit(platform) == 0
    assert schedules("delete", platform, "weekly") == 2
    error = capsys.readouterr().err
    assert "no schedule has the name or id weekly; there are: chicago-taxi." in error
    assert submit(platform, cron="0 4 * * *") == 2
    error = capsys.readouterr().err
    assert "there is a schedule named chicago-taxi (active, " in error
    assert f"schedules delete --target {platform} chicago-taxi" in error
    assert len(states(platform, server)) == 1


def test_schedules_that_share_a_name_are_distinguished_by_their_ids(kubeflow, capsys):
    """KFP's pages let people create two of one name."""
    assert submit("kubeflow") == submit("kubeflow", "--run-name", "b") == 0
    kubeflow.recurring["recurring-2"].display_name = "chicago-taxi"
    assert schedules("delete", "kubeflow", "chicago-taxi") == 2
    assert "2 schedules are named chicago-taxi; give an id: recurring-1, recurring-2" in (
        capsys.readouterr().err
    )
    assert schedules("delete", "kubeflow", "recurring-2") == 0
    assert list(kubeflow.recurring) == ["recurring-1"]


def test_options_that_contradict_a_schedule_are_refused(platform, server, capsys):
    assert submit(platform, cron="0 3 * *") == 2
    assert "has 4 fields" in capsys.readouterr().err
    assert submit(platform, "--wait") == 2
    assert "--wait: with --schedule" in capsys.readouterr().err
    assert main(["submit", "--spec", "x", "--timezone", "UTC"]) == 2
    assert "--timezone needs --schedule" in capsys.readouterr().err
    if platform == "kubeflow":
        assert submit(platform, "--timezone", "Europe/Berlin") == 2
        assert "CRON_SCHEDULE_TIMEZONE" in capsys.readouterr().err
    else:
        assert submit(platform, "--experiment", "taxi") == 2
        assert "jobs of Vertex are grouped by cluster.vertex.labels" in capsys.readouterr().err
    assert not states(platform, server)


def test_failures_of_a_server_are_reported(platform, server, capsys):
    assert submit(platform) == 0
    capsys.readouterr()
    place = {"kubeflow": f"{API}/recurringruns", "vertex": f"/v1/{PLACE}/schedules"}[platform]
    for answer, message in (
        (Answer({"error": {"code": 403, "message": "not yours \x1b"}}, 403), "403"),
        (Answer(b"<h1>Sign in</h1>"), "answers with no JSON object but 'Sign in'"),
        (Answer({"error": "busy"}, 503), "503"),
    ):
        server.failures = {f"{verb} {place}": answer for verb in ("GET", "POST", "DELETE")}
        for action in ("list", "pause", "resume", "delete"):
            assert schedules(action, platform, *(["x"] if action != "list" else [])) == 2
            error = capsys.readouterr().err
            assert error.startswith(f"{platform}: ")
            assert message in error
            assert "\x1b" not in error
        assert submit(platform) == 2
        assert message in capsys.readouterr().err
