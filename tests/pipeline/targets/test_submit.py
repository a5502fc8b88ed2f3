"""`submit` against servers that speak the APIs of the installed clients, and what is printed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import kubeflow_server
import pytest
import vertex_server
import yaml
from compiled_taxi import FILES, TAXI, settings
from google.protobuf import json_format
from kubeflow_server import run_now
from loopback import Answer
from submitting import API, PLACE, declaring, submit, user_yaml
from vertex_server import job_now

from pipeline.cli.cli import main

GOLDEN = FILES["kubeflow"]


def test_the_compiled_bytes_are_uploaded_and_a_run_of_them_started(kubeflow, tmp_path, capsys):
    file = user_yaml(tmp_path, "kubeflow", service_account="trainer")
    given = ("--config", file, "--run-name", "nightly", "--experiment", "taxi")
    assert submit("kubeflow", *given) == 0
    (run,) = kubeflow.runs.values()
    assert run.display_name == "nightly"
    assert run.service_account == "trainer"
    assert run.runtime_config.parameters == {}
    assert run.runtime_config.pipeline_root == "s3://bucket/root"
    assert kubeflow.experiments[run.experiment_id].display_name == "taxi"
    version = run.pipeline_version_reference
    assert kubeflow.uploaded[version.pipeline_version_id] == GOLDEN.read_bytes()
    assert kubeflow.pipelines[version.pipeline_id].display_name == "chicago-taxi"
    assert capsys.readouterr().out.splitlines() == [
        "Uploaded: pipeline chicago-taxi, new",
        "Started: run 'nightly' in experiment taxi",
        f"Its page: {kubeflow.url}/#/runs/details/run-1",
    ]


def test_the_job_that_is_created_is_the_compiled_file(vertex, tmp_path, capsys):
    network = "projects/12345/global/networks/private"
    account = "trainer@my-project.iam.gserviceaccount.com"
    compiled = json.loads(FILES["vertex"].read_text())
    file = tmp_path / "job.json"
    file.write_text(json.dumps({**compiled, "serviceAccount": account, "network": network}))
    assert submit("vertex", "--run-name", "nightly", spec=file) == 0
    ((name, job),) = vertex.jobs.items()
    assert name.startswith(f"{PLACE}/pipelineJobs/chicago-taxi-")
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
    profile = user_yaml(tmp_path, "vertex", project="other", region="us-east1")
    assert submit("vertex", "--config", profile) == 0
    assert list(vertex.jobs)[-1].startswith("projects/other/locations/us-east1/pipelineJobs/")


def test_a_known_pipeline_gets_a_version_and_a_known_file_is_not_sent_again(
    kubeflow, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("KF_PIPELINES_DEFAULT_EXPERIMENT_NAME", "team")
    changed = tmp_path / "changed.yaml"
    changed.write_text(GOLDEN.read_text().replace("s3://bucket/root", "s3://bucket/other"))
    for spec in (GOLDEN, changed, changed, GOLDEN):
        assert submit("kubeflow", spec=spec) == 0
    assert len(kubeflow.got(f"POST {API}/pipelines/upload_version")) == 1
    assert len(kubeflow.pipelines) == 1
    versions = [r.pipeline_version_reference.pipeline_version_id for r in kubeflow.runs.values()]
    assert versions == ["version-1", "version-2", "version-2", "version-1"]
    assert kubeflow.uploaded["version-2"] == changed.read_bytes()
    assert "Pipeline chicago-taxi has this file already" in capsys.readouterr().out
    assert kubeflow.versions["version-2"].display_name.startswith("chicago-taxi ")
    assert [e.display_name for e in kubeflow.experiments.values()] == ["team"]


def test_parameters_arrive_with_their_types(platform, server, tmp_path, capsys):
    kinds = {"rows": "NUMBER_INTEGER", "rate": "NUMBER_DOUBLE", "name": "STRING", "dry": "BOOLEAN"}
    file = declaring(tmp_path, platform, **kinds)
    given = ("rows=3", "rate=1", "name=a=b", "dry=true")
    assert submit(platform, *(f"--parameter={each}" for each in given), spec=file) == 0
    if platform == "kubeflow":
        (run,) = server.runs.values()
        found = run.runtime_config.parameters
    else:
        (job,) = server.jobs.values()
        found = dict(job.runtime_config.parameter_values)
    assert found == {"rows": 3, "rate": 1, "name": "a=b", "dry": True}
    for wrong, message in (
        ("rows=many", "--parameter rows='many': not a NUMBER_INTEGER"),
        ("x=1", "no parameter of this name; it has "),
        (f"name=ghp_{'a1' * 18}", "--parameter name: its value has a token of GitHub"),
        ("api_token=1", "--parameter api_token: its name is that of a credential"),
    ):
        assert submit(platform, f"--parameter={wrong}", spec=file) == 2
        assert message in capsys.readouterr().err


def test_wait_shows_a_line_per_node_and_ends_with_the_run(kubeflow, capsys):
    kubeflow.polls = [
        run_now("PENDING"),
        run_now("RUNNING", {"ArrowExampleGen": "RUNNING"}),
        run_now("RUNNING", {"ArrowExampleGen": "SUCCEEDED", "StatisticsGen": "PENDING"}),
        run_now("RUNNING", {"ArrowExampleGen": "SUCCEEDED", "StatisticsGen": "RUNNING"}),
        run_now(
            "SUCCEEDED", {"ArrowExampleGen": "SUCCEEDED", "StatisticsGen": ("SUCCEEDED", "SKIPPED")}
        ),
    ]
    assert submit("kubeflow", "--wait") == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "[ 1/11] ArrowExampleGen: done in 1 min 00 s",
        "[ 3/11] StatisticsGen: cached in 2 min 00 s",
        "",
        "Every node ran.",
    ]
    assert len(kubeflow.got(f"GET {API}/runs/run-1")) == 5


@pytest.mark.parametrize(
    ("blessed", "code", "end"),
    [(1, 0, "Every node ran; blessed"), (0, 3, "Every node ran; not blessed: it is not pushed")],
)
def test_wait_for_vertex_shows_whether_the_model_is_blessed(vertex, capsys, blessed, code, end):
    blessing = {"outputs": {"blessing": {"artifacts": [{"metadata": {"blessed": blessed}}]}}}
    vertex.polls = [
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
    assert submit("vertex", "--wait") == code
    lines = [line.partition("] ")[2] or line for line in capsys.readouterr().out.splitlines()[2:]]
    assert lines == [
        "ArrowExampleGen: cached in 1 min 00 s",
        "Trainer: done in 2 min 00 s",
        "Evaluator: done in 3 min 00 s",
        "Pusher: done in 4 min 00 s",
        "",
        end,
    ]


def test_a_failed_node_is_reported_with_its_pod_and_later_nodes_are_not(kubeflow, capsys):
    kubeflow.polls = [
        run_now("RUNNING", {"ArrowExampleGen": "SUCCEEDED", "Trainer": "RUNNING"}),
        run_now(
            "FAILED",
            {"ArrowExampleGen": "SUCCEEDED", "Trainer": "FAILED", "Evaluator": "SKIPPED"},
            error="OOMKilled (137) \x1b]0;t\x07 [bold red]x[/] :bug: [link=http://evil]y http://a:b@host",
        ),
    ]
    assert submit("kubeflow", "--wait") == 1
    printed = capsys.readouterr().out
    assert "Trainer: failed in 2 min 00 s" in printed
    assert "Evaluator" not in printed
    assert printed.splitlines()[-4:] == [
        "Trainer failed after 2 min 00 s:",
        "Its log: kubectl logs taxi-x7-system-container-impl-112 --container main",
        # Neither escape sequences nor rich's markup and emoji names act on the terminal.
        "OOMKilled (137) \\x1b]0;t\\x07 [bold red]x[/] :bug: [link=http://evil]y http://host",
        f"Its page: {kubeflow.url}/#/runs/details/run-1",
    ]
    kubeflow.polls = [run_now("CANCELED", {"Trainer": "CANCELED"})]
    assert submit("kubeflow", "--wait") == 1
    assert "The run was stopped: " in capsys.readouterr().out


def test_a_failed_node_of_vertex_is_reported_with_its_message_and_job(vertex, capsys):
    failure = {
        "error": {"code": 9, "message": "The replica workerpool0-0 exited with a non-zero status."},
        "executor_detail": {"container_detail": {"main_job": f"{PLACE}/customJobs/$(reboot)"}},
    }
    message = "The DAG failed: [bold]Trainer[/bold] \x1b[2J :bug: http://a:b@host"
    trainer = ("FAILED", failure)
    tasks = {"Transform": "SUCCEEDED", "Trainer": trainer, "Evaluator": "NOT_TRIGGERED"}
    vertex.polls = [job_now("FAILED", message, **tasks)]
    assert submit("vertex", "--wait") == 1
    printed = capsys.readouterr().out
    assert printed.splitlines()[-6:-1] == [
        "",
        "Trainer failed after 2 min 00 s:",
        "The replica workerpool0-0 exited with a non-zero status.",
        "Its log: gcloud logging read resource.labels.job_id='$(reboot)'",
        "The DAG failed: [bold]Trainer[/bold] \\x1b[2J :bug: http://host",
    ]
    assert "Evaluator" not in printed


def test_wait_survives_failures_that_pass(kubeflow, capsys):
    kubeflow.polls = [run_now("SUCCEEDED")]
    left = [(503, "upstream connect error"), (500, "busy"), (401, "token has expired")]
    kubeflow.answer = lambda request: (
        kubeflow_server.error(*left.pop(0))
        if left and request.path == f"{API}/runs/run-1"
        else kubeflow._answer(request)
    )
    assert submit("kubeflow", "--wait") == 0
    assert "Every node ran." in capsys.readouterr().out
    assert not left
    assert len(kubeflow.got(f"GET {API}/healthz")) == 2, "for another token"
    kubeflow.failures[f"GET {API}/runs/"] = kubeflow_server.error(500, "database is locked")
    assert submit("kubeflow", "--wait") == 1
    printed = capsys.readouterr().out
    assert "cannot look at the run: 500 Internal Server Error: database is locked" in printed
    assert f"The run continues: {kubeflow.url}/#/runs/details/run-2" in printed
    assert "terminate_run" in printed
    assert len(kubeflow.got(f"GET {API}/runs/run-2")) == 10


def of_kubeflow(place, status, message, *facts):
    return "kubeflow", place, kubeflow_server.error(status, message), facts


def of_vertex(status, kind, message, *facts):
    answer = vertex_server.error(status, kind, message)
    return "vertex", "POST /v1/projects", answer, ("cannot create the job: ", *facts)


UPLOAD = f"POST {API}/pipelines/upload"
LOGIN = Answer(b"<html><h1>Sign in</h1> to your account</html>", kind="text/html")


ERRORS = [
    of_kubeflow("GET /", 401, "not authenticated", "connect: 401", "context.json"),
    of_kubeflow("GET /", 403, "no", "connect: 403", "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID"),
    of_kubeflow("GET /", 404, "not found", "404", f"{API}/healthz", "ENDPOINT is http"),
    (
        *("kubeflow", "GET /", LOGIN),
        ("cannot connect: KFP's client failed", "a login page", "context.json"),
    ),
    of_kubeflow(
        *(UPLOAD, 400, "Failed to load the spec: unknown template format"),
        "cannot upload the pipeline: 400 Bad Request: Failed to load the spec",
    ),
    of_kubeflow(
        *(f"GET {API}/experiments", 400, "In multi-user mode, namespace is empty"),
        "multi-user mode, namespace is empty",
        'context.json has to name your namespace: {"namespace": ...}.',
    ),
    of_kubeflow(
        *(UPLOAD, 409, "Already exist error"),
        "409 Conflict: Already exist error. The name is taken, perhaps in another namespace",
    ),
    (
        *("kubeflow", UPLOAD, Answer(b"<html>413</html>", 413, kind="text/html")),
        ("cannot upload the pipeline: 413 ", " Too Large: 413."),
    ),
    of_kubeflow(
        *(f"POST {API}/runs", 500, "Internal error: failed to create a workflow"),
        *("start a run: 500", "failed to create a workflow", "-n kubeflow deployment/ml-"),
    ),
    of_vertex(
        *(403, "PERMISSION_DENIED", "Permission 'x' denied"),
        *("403 Permission 'x' denied", "roles/aiplatform.user"),
    ),
    of_vertex(
        *(404, "NOT_FOUND", "Network projects/1/global/networks/x was not found"),
        *("404 Network projects/1", "cluster.vertex.project and cluster.vertex.region"),
    ),
    of_vertex(
        *(400, "INVALID_ARGUMENT", "NVIDIA_TESLA_T5 is not supported"),
        *("400 NVIDIA_TESLA_T5 is not supported", "cluster.vertex.resources"),
    ),
    of_vertex(401, "UNAUTHENTICATED", "no", "401", "application-default"),
    of_vertex(429, "RESOURCE_EXHAUSTED", "Quota exceeded", "429 Quota exceeded", "try again"),
    of_vertex(503, "UNAVAILABLE", "try later", "503 try later. Vertex' own failure"),
]


def test_server_errors_are_translated(platform, server, capsys):
    for _, request, answer, facts in (row for row in ERRORS if row[0] == platform):
        server.failures = {request: answer}
        server.pipelines.clear() if platform == "kubeflow" else None
        assert submit(platform) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith(f"{platform}: ")
        assert "Traceback" not in printed.err
        assert not [fact for fact in facts if fact not in printed.err], printed.err
        assert "Started" not in printed.out


def test_no_server_and_no_host_are_reported(monkeypatch, capsys, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", f"http://{host}")
        assert submit("kubeflow") == 2
    printed = capsys.readouterr().err
    assert "cannot connect: no answer (" in printed
    assert "Connection refused" in printed
    assert f"KF_PIPELINES_ENDPOINT is http://{host}." in printed
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert submit("kubeflow") == 2
    assert "export KF_PIPELINES_ENDPOINT=https://host/pipeline" in capsys.readouterr().err


def test_what_this_machine_lacks_for_vertex_is_reported(vertex, capsys, monkeypatch, tmp_path):
    assert submit("vertex", "--parameter=x=1") == 2
    assert "no parameter of this name; it has none" in capsys.readouterr().err
    assert submit("vertex", "--experiment", "taxi") == 2
    assert "jobs of Vertex are grouped by cluster.vertex.labels" in capsys.readouterr().err
    file = tmp_path / "job.json"
    file.write_text(json.dumps({**json.loads(FILES["vertex"].read_text()), "machines": 3}))
    assert submit("vertex", spec=file) == 2
    assert 'no field named "machines"' in capsys.readouterr().err
    monkeypatch.delenv("GOOGLE_CLOUD_REGION")
    assert submit("vertex") == 2
    assert "no region: name it as cluster.vertex.region" in capsys.readouterr().err
    monkeypatch.setenv("GOOGLE_CLOUD_REGION", "europe-west4")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    assert submit("vertex") == 2
    assert "gcloud auth application-default login" in capsys.readouterr().err
    assert not vertex.requests


@pytest.mark.slow  # imports TFX
def test_a_configuration_is_compiled_and_sent_as_compile_writes_it(kubeflow, tmp_path, capsys):
    given = ["--target", "kubeflow", "--config", str(TAXI)]
    given += [f"--set={each}" for each in settings("kubeflow")]
    file = tmp_path / "compiled.yaml"
    assert main(["compile", *given, "--output", str(file)]) == 0
    assert main(["submit", *given]) == 0
    assert kubeflow.uploaded["version-1"] == file.read_bytes()
    assert "Compiled chicago-taxi for kubeflow\nUploaded: " in capsys.readouterr().out
    assert main(["submit", *given, "--set=cluster.kubeflow.image=registry.example/x"]) == 2
    assert "image=registry.example/x: not a valid image reference" in capsys.readouterr().err
    assert len(kubeflow.runs) == 1


@pytest.mark.parametrize(
    ("platform", "package", "command"),
    [
        ("kubeflow", "kfp", "uv pip install 'tfx-largebatch[pipeline]'"),
        ("vertex", "google.cloud.aiplatform_v1", "pip install google-cloud-aiplatform"),
    ],
)
def test_a_client_that_is_not_installed_is_reported_with_its_command(
    monkeypatch, capsys, platform, package, command
):
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    parent, _, name = package.rpartition(".")
    if parent in sys.modules:
        monkeypatch.delattr(sys.modules[parent], name, raising=False)
    assert submit(platform) == 2
    assert command in capsys.readouterr().err


def test_no_client_of_a_platform_is_imported_before_it_is_used():
    modules = [f"pipeline.targets.{name}" for name in ("submit", "field_checks")]
    clients = ("kubeflow_client", "vertex_client")
    modules += [f"pipeline.platforms.{name}" for name in clients]
    clouds = ("kfp", "kfp_server_api", "google.api_core", "google.auth", "kubernetes", "tfx")
    code = (
        "import sys, pipeline.cli.cli\n"
        f"import {', '.join(modules)}\n"
        f"print(*sorted(set(sys.modules) & set({clouds!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_options_that_contradict_the_file_are_refused(kubeflow, capsys):
    for arguments, message in (
        (["--spec", str(GOLDEN), "--target", "vertex"], "compiled for kubeflow, and --target says"),
        (["--target", "kubeflow"], "give --target and --config, or --spec"),
        (["--spec", str(GOLDEN), "--wait", "--poll", "0"], "0: give a number of seconds above 0"),
    ):
        assert main(["submit", *arguments]) == 2
        assert message in capsys.readouterr().err


def submitting(home, *arguments, **env):
    """A process that submits: the clients read settings of the user when they are imported."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", "submit", "--spec", str(GOLDEN), *arguments],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A test run in a shell's background ignores SIGINT, and so do its child processes.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_ctrl_c_leaves_the_run_and_the_context_file_has_the_cookie(kubeflow, tmp_path):
    kubeflow.polls = [run_now("RUNNING", {"ArrowExampleGen": "RUNNING"})]
    kubeflow.cookie = "authservice_session=secret"
    context = tmp_path / ".config" / "kfp" / "context.json"
    context.parent.mkdir(parents=True)
    cookie = {"client_authentication_cookie": kubeflow.cookie}
    context.write_text(json.dumps({"namespace": "", **cookie}))
    process = submitting(tmp_path, "--wait", KF_PIPELINES_ENDPOINT=kubeflow.url)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[2].startswith("Its page: "), lines
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"The run continues: {kubeflow.url}/#/runs/details/run-1" in printed
    assert 'kfp.Client().terminate_run("run-1")' in printed
    assert "Traceback" not in printed


def test_kubectls_configuration_leads_to_the_server_through_kubernetes(kubeflow, tmp_path):
    proxy = "/api/v1/namespaces/kubeflow/services/ml-pipeline:http/proxy/"
    answer = kubeflow.answer
    kubeflow.answer = lambda request: (
        answer(replace(request, path=request.path.removeprefix(proxy)))
        if request.path.startswith(proxy) and request.headers["authorization"] == "Bearer secret"
        else kubeflow_server.error(401, "Unauthorized")
    )
    config = {
        "clusters": [{"name": "c", "cluster": {"server": kubeflow.url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    process = submitting(tmp_path, KUBECONFIG=str(file))
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert len(kubeflow.runs) == 1
    page = "Its page: /#/runs/details/run-1 of Kubeflow's pages, which KF_PIPELINES_UI"
    assert page in printed
