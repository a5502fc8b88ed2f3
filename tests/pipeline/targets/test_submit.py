"""`submit` against servers that speak the APIs of the installed clients, and what is printed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace

import kfp
import kubeflow_server
import pytest
import vertex_server
import yaml
from compiled_taxi import FILES, TAXI, documents_of, settings
from google.protobuf import json_format
from kubeflow_server import run_now
from loopback import Answer
from vertex_server import job_now

from pipeline.cli.cli import main
from pipeline.platforms.platform import connection_error

GOLDEN = FILES["kubeflow"]
API = "/apis/v2beta1"
PLACE = "projects/my-project/locations/europe-west4"


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch):
    monkeypatch.setattr("pipeline.targets.submit._SECONDS", 0.01)


def submit(platform, *arguments, spec=None):
    """Submit a compiled file, so that TFX is not imported; return the exit code."""
    file = spec or FILES[platform]
    return main(["submit", "--spec", str(file), *map(str, arguments)])


def refusal(capsys, platform, *arguments, spec=None):
    """Submit what is refused; return what was printed, without the platform's name before it."""
    assert submit(platform, *arguments, spec=spec) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "tell-nobody" not in out + err
    return err.removeprefix(f"{platform}: ")


def profile(target, *fields):
    """Options with a YAML's profile; with --spec, its other sections are not used."""
    return ["--config", TAXI, *(f"--set={each}" for each in settings(target, *fields))]


def test_the_compiled_bytes_are_uploaded_and_a_run_of_them_started(kubeflow, capsys, monkeypatch):
    address = kubeflow.url.replace("http://", "http://user:tell-nobody@")
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", address)
    given = profile("kubeflow", ".service_account=trainer")
    assert submit("kubeflow", *given, "--run-name", "nightly", "--experiment", "taxi") == 0
    (run,) = kubeflow.runs.values()
    assert (run["display_name"], run["service_account"]) == ("nightly", "trainer")
    assert run["runtime_config"] == {"parameters": {}, "pipeline_root": "s3://bucket/root"}
    assert kubeflow.experiments[run["experiment_id"]]["display_name"] == "taxi"
    version = run["pipeline_version_reference"]
    assert kubeflow.uploaded[version["pipeline_version_id"]] == GOLDEN.read_bytes()
    assert kubeflow.pipelines[version["pipeline_id"]]["display_name"] == "chicago-taxi"
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
    started, page = capsys.readouterr().out.splitlines()
    assert started == f"Started: job {job_id} in europe-west4 of project my-project"
    place = "https://console.cloud.google.com/vertex-ai/locations/europe-west4/pipelines/runs"
    assert page == f"Its page: {place}/{job_id}?project=my-project"
    assert submit("vertex", *profile("vertex", ".project=other", ".region=us-east1")) == 0
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
    references = [run["pipeline_version_reference"] for run in kubeflow.runs.values()]
    versions = [each["pipeline_version_id"] for each in references]
    assert versions == ["version-1", "version-2", "version-2", "version-1"]
    assert kubeflow.uploaded["version-2"] == changed.read_bytes()
    assert "Pipeline chicago-taxi has this file already" in capsys.readouterr().out
    assert kubeflow.versions["version-2"]["display_name"].startswith("chicago-taxi ")
    assert [each["display_name"] for each in kubeflow.experiments.values()] == ["team"]


def test_parameters_arrive_with_their_types(platform, server, tmp_path, capsys):
    kinds = {"rows": "NUMBER_INTEGER", "rate": "NUMBER_DOUBLE", "name": "STRING", "dry": "BOOLEAN"}
    job, *rest = documents_of(FILES[platform].read_text())
    declared = {name: {"parameterType": kind, "isOptional": True} for name, kind in kinds.items()}
    job.get("pipelineSpec", job)["root"]["inputDefinitions"] = {"parameters": declared}
    file = tmp_path / "with-parameters.yaml"
    file.write_text("---\n".join(json.dumps(each) + "\n" for each in (job, *rest)))
    given = ("rows=3", "rate=1", "name=a=b", "dry=true")
    assert submit(platform, *(f"--parameter={each}" for each in given), spec=file) == 0
    if platform == "kubeflow":
        (run,) = server.runs.values()
        found = run["runtime_config"]["parameters"]
    else:
        (job,) = server.jobs.values()
        found = dict(job.runtime_config.parameter_values)
    assert found == {"rows": 3, "rate": 1, "name": "a=b", "dry": True}
    for wrong, message in (
        (f"name=ghp_{'a1' * 18}", "--parameter name: its value has a token of GitHub"),
        ("api_token=1", "--parameter api_token: its name is that of a credential"),
    ):
        assert message in refusal(capsys, platform, f"--parameter={wrong}", spec=file)


def test_wait_shows_a_line_per_node_and_ends_with_the_run(kubeflow, capsys):
    first = {"ArrowExampleGen": "SUCCEEDED"}
    kubeflow.polls = [
        run_now("PENDING"),
        run_now("RUNNING", {"ArrowExampleGen": "RUNNING"}),
        run_now("RUNNING", {**first, "StatisticsGen": "RUNNING"}),
        run_now("SUCCEEDED", {**first, "StatisticsGen": ("SUCCEEDED", "SKIPPED")}),
    ]
    assert submit("kubeflow", "--wait") == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "[ 1/11] ArrowExampleGen: done in 1 min 00 s",
        "[ 3/11] StatisticsGen: cached in 2 min 00 s",
        "",
        "Every node ran.",
    ]


@pytest.mark.parametrize(
    ("blessed", "code", "end"),
    [(1, 0, "Every node ran; blessed"), (0, 3, "Every node ran; not blessed: it is not pushed")],
)
def test_wait_for_vertex_shows_whether_the_model_is_blessed(vertex, capsys, blessed, code, end):
    blessing = {"outputs": {"blessing": {"artifacts": [{"metadata": {"blessed": blessed}}]}}}
    vertex.polls = [
        job_now("PENDING"),
        job_now("RUNNING", ArrowExampleGen="SKIPPED", Evaluator="RUNNING"),
        job_now("SUCCEEDED", ArrowExampleGen="SKIPPED", Evaluator=("SUCCEEDED", blessing)),
    ]
    assert submit("vertex", "--wait") == code
    lines = [line.partition("] ")[2] or line for line in capsys.readouterr().out.splitlines()[2:]]
    nodes = ["ArrowExampleGen: cached in 1 min 00 s", "Evaluator: done in 2 min 00 s"]
    assert lines == [*nodes, "", end]


def test_a_failed_node_is_reported_with_its_pod_and_later_nodes_are_not(kubeflow, capsys):
    error = "OOMKilled (137) \x1b]0;t\x07 [bold red]x[/] :bug: [link=http://evil]y http://a:b@host"
    ended = {"ArrowExampleGen": "SUCCEEDED", "Trainer": "FAILED", "Evaluator": "SKIPPED"}
    kubeflow.polls = [run_now("FAILED", ended, error=error)]
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


CREATE, UPLOAD = "POST /v1/projects", f"POST {API}/pipelines/upload"
failure, vertex_failure = kubeflow_server.error, vertex_server.error
LOGIN = Answer(b"<html><h1>Sign in</h1> to your account</html>", kind="text/html")
MOVED = {"Location": "https://user:tell-nobody@login.example/\x1b[2J?a=b"}
ERRORS = {
    "kubeflow": [  # request, answer, facts of what is printed
        ("GET /", failure(401, "not authenticated"), ["connect: 401", "context.json"]),
        ("GET /", failure(403, "no"), ["connect: 403", "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID"]),
        ("GET /", failure(404, "not found"), ["404", f"{API}/healthz", "ENDPOINT is http"]),
        ("GET /", LOGIN, ["KFP's client failed", "a login page", "context.json"]),
        ("GET /", Answer(b"x", 302, headers=MOVED), ["https://login.example/\\x1b[2J?a=b:"]),
        (
            f"GET {API}/experiments",
            failure(400, "In multi-user mode, namespace is empty"),
            ["multi-user mode, namespace is empty", 'name your namespace: {"namespace": ...}.'],
        ),
        (
            UPLOAD,
            failure(409, "Already exist error"),
            ["name is taken, perhaps in another name"],
        ),
        (
            f"POST {API}/runs",
            failure(500, "Internal error: failed to create a workflow"),
            ["start a run: 500", "failed to create a workflow", "-n kubeflow deployment/ml-"],
        ),
    ],
    "vertex": [
        (CREATE, vertex_failure(code, status, words), ["cannot create the job: ", *facts])
        for code, status, words, *facts in (
            (403, "PERMISSION_DENIED", "Permission denied", "403 Per", "roles/aiplatform.user"),
            (404, "NOT_FOUND", "No network", "404 No", "vertex.project and cluster.vertex.region"),
            (400, "INVALID_ARGUMENT", "T5 is not there", "400 T5", "cluster.vertex.resources"),
            (401, "UNAUTHENTICATED", "no", "401", "application-default"),
            (429, "RESOURCE_EXHAUSTED", "Quota exceeded", "429 Quota exceeded", "try again"),
            (503, "UNAVAILABLE", "try later", "503 try later. Vertex' own failure"),
        )
    ],
}


def test_server_errors_are_translated(platform, server, capsys):
    for request, answer, facts in ERRORS[platform]:
        server.failures = {request: answer}
        server.pipelines.clear() if platform == "kubeflow" else None
        printed = refusal(capsys, platform)
        assert not [fact for fact in facts if fact not in printed], printed


def test_an_answer_that_is_late_or_not_of_the_api_is_reported(platform, server, capsys):
    """For Kubeflow on several of the requests of a submission."""
    server.failures[ERRORS[platform][0][0]] = Answer({"a": 1}, seconds=5.0)
    printed = refusal(capsys, platform, "--timeout", "1")
    assert "timed out" in printed
    assert "If the server is slow, raise --timeout." in printed
    places = [UPLOAD, f"POST {API}/runs"] if platform == "kubeflow" else [CREATE]
    for body in (b"", b"[" * 100_000, b'{"name": "x/y", "run_id": []}'):
        for place in places:
            server.failures = {place: Answer(body, kind="text/html")}
            server.pipelines.clear() if platform == "kubeflow" else None
            assert "a proxy" in refusal(capsys, platform)


def test_a_server_that_is_not_reached_is_named(kubeflow, monkeypatch, capsys, tmp_path):
    """KFP's client takes an address without a scheme as https://."""
    for address, message in (
        ("http://user:tell-nobody@127.0.0.1:1", "KF_PIPELINES_ENDPOINT is http://127.0.0.1:1."),
        (kubeflow.url.replace("http://", ""), "use an address that begins with http://"),
    ):
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", address)
        printed = refusal(capsys, "kubeflow", "--timeout", "1")
        assert "cannot connect: no answer (" in printed
        assert message in printed
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    assert "none.pem: no such file" in refusal(capsys, "kubeflow")
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "export KF_PIPELINES_ENDPOINT=https://host/pipeline" in refusal(capsys, "kubeflow")


def test_a_private_ca_is_named_by_a_variable(kubeflow, capsys, monkeypatch, tmp_path):
    used = []
    monkeypatch.setattr(kfp.Client, "__init__", lambda self, ssl_ca_cert: used.append(ssl_ca_cert))
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    refusal(capsys, "kubeflow")  # that client is none
    assert used == [str(tmp_path / "ca.pem")]
    error = connection_error("connect", "certificate: CERTIFICATE_VERIFY_FAILED", "")
    assert "export REQUESTS_CA_BUNDLE=" in str(error)


def test_a_broken_context_file_is_named(kubeflow, capsys, monkeypatch, tmp_path):
    """KFP's client asks for the server's health only without a namespace; a gateway may hide it."""
    started = len(kubeflow.runs)
    file = tmp_path / "context.json"
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(file))
    file.write_text('{"client_authentication_cookie": "tell-nobody"}')
    assert "context.json is not of the form " in refusal(capsys, "kubeflow")
    file.write_text(
        '{"namespace": "", "client_authentication_cookie": "tell-nobody\\ntell-nobody"}'
    )
    assert "Invalid header value" in refusal(capsys, "kubeflow")
    file.write_text('{"namespace": "team"}')
    assert len(kubeflow.runs) == started
    kubeflow.failures[f"GET {API}/healthz"] = Answer({}, 404)
    assert submit("kubeflow") == 0


def test_what_this_machine_lacks_for_vertex_is_reported(
    vertex, capsys, monkeypatch, tmp_path, google_key
):
    assert "it has none" in refusal(capsys, "vertex", "--parameter=x=1")
    assert "by cluster.vertex.labels" in refusal(capsys, "vertex", "--experiment", "taxi")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({**json.loads(FILES["vertex"].read_text()), "machines": 3}))
    assert 'no field named "machines"' in refusal(capsys, "vertex", spec=file)
    account = json.loads(google_key.read_text())
    file.write_text(json.dumps({**account, "private_key": "tell-nobody"}))
    with monkeypatch.context() as patch:
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        assert "GOOGLE_APPLICATION_CREDENTIALS" in refusal(capsys, "vertex")
    monkeypatch.delenv("GOOGLE_CLOUD_REGION")
    assert "no region: name it as cluster.vertex.region" in refusal(capsys, "vertex")
    monkeypatch.setenv("GOOGLE_CLOUD_REGION", "europe-west4")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    assert "gcloud auth application-default login" in refusal(capsys, "vertex")
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


def test_options_that_contradict_the_file_are_refused(kubeflow, capsys):
    for arguments, message in (
        (["--spec", str(GOLDEN), "--target", "vertex"], "compiled for kubeflow, and --target says"),
        (["--target", "kubeflow"], "give --target and --config, or --spec"),
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
    kubeflow.cookie = "authservice_session=tell-nobody"
    context = tmp_path / ".config" / "kfp" / "context.json"
    context.parent.mkdir(parents=True)
    cookie = {"client_authentication_cookie": kubeflow.cookie}
    context.write_text(json.dumps({"namespace": "", **cookie}))
    process = submitting(tmp_path, "--wait", KF_PIPELINES_ENDPOINT=kubeflow.url)
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
        if request.path.startswith(proxy)
        and request.headers["authorization"] == "Bearer tell-nobody"
        else kubeflow_server.error(401, "Unauthorized")
    )
    config = {
        "clusters": [{"name": "c", "cluster": {"server": kubeflow.url}}],
        "users": [{"name": "u", "user": {"token": "tell-nobody"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    process = submitting(tmp_path, KUBECONFIG=str(file))
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert len(kubeflow.runs) == 1
    assert "Its page: /#/runs/details/run-1 of Kubeflow's pages, which KF_PIPELINES" in printed
