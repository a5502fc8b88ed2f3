"""`submit` against an HTTP server that speaks the API of the installed KFP client.

The compiled file is the golden one, so that TFX is not imported.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from kubeflow_server import error, run_now
from loopback import Answer

from pipeline.cli.cli import main

GOLDEN = Path(__file__).with_name("golden") / "taxi-kubeflow.yaml"
API = "/apis/v2beta1"


@pytest.fixture
def server(kubeflow):
    return kubeflow


def submit(*arguments, spec=GOLDEN):
    return main(["submit", "--spec", str(spec), "--poll", "0.01", *map(str, arguments)])


def profile(folder, **fields):
    """A YAML with a profile; what it says of the pipeline itself is not looked at with --spec."""
    config = yaml.safe_load(Path("examples/taxi/pipeline.yaml").read_text())
    place = {"image": "registry.example/x:1", "pipeline_root": "s3://bucket/root"}
    config["cluster"] = {"kubeflow": {**place, **fields}}
    file = folder / "my.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def test_the_compiled_bytes_are_uploaded_and_a_run_of_them_started(server, tmp_path, capsys):
    file = profile(tmp_path, service_account="trainer")
    assert submit("--config", file, "--run-name", "nightly", "--experiment", "taxi") == 0
    (run,) = server.runs.values()
    assert run.display_name == "nightly"
    assert run.service_account == "trainer"
    assert run.runtime_config.parameters == {}
    assert run.runtime_config.pipeline_root == "s3://bucket/root"
    assert server.experiments[run.experiment_id].display_name == "taxi"
    version = run.pipeline_version_reference.pipeline_version_id
    assert server.uploaded[version] == GOLDEN.read_bytes()
    assert server.pipelines[run.pipeline_version_reference.pipeline_id].display_name == (
        "chicago-taxi"
    )
    assert capsys.readouterr().out.splitlines() == [
        "Uploaded: pipeline chicago-taxi, new",
        "Started: run 'nightly' in experiment taxi",
        f"Its page: {server.url}/#/runs/details/run-1",
    ]


def test_a_known_pipeline_gets_a_version_and_a_known_file_is_not_sent_again(
    server, tmp_path, capsys
):
    assert submit() == 0
    changed = tmp_path / "changed.yaml"
    changed.write_text(GOLDEN.read_text().replace("s3://bucket/root", "s3://bucket/other"))
    assert submit(spec=changed) == 0
    assert submit(spec=changed) == 0
    assert submit() == 0
    assert len(server.got(f"POST {API}/pipelines/upload_version")) == 1
    assert len(server.pipelines) == 1
    versions = [run.pipeline_version_reference.pipeline_version_id for run in server.runs.values()]
    assert versions == ["version-1", "version-2", "version-2", "version-1"]
    assert server.uploaded["version-2"] == changed.read_bytes()
    assert "Pipeline chicago-taxi has this file already" in capsys.readouterr().out
    assert server.versions["version-2"].display_name.startswith("chicago-taxi ")


def test_an_experiment_is_made_once_and_the_variable_names_it(server, monkeypatch):
    monkeypatch.setenv("KF_PIPELINES_DEFAULT_EXPERIMENT_NAME", "team")
    assert submit() == submit() == 0
    assert [e.display_name for e in server.experiments.values()] == ["team"]


def test_parameters_reach_the_run_with_their_types(server, tmp_path, capsys):
    spec = yaml.safe_load(GOLDEN.read_text())
    kinds = {"rows": "NUMBER_INTEGER", "rate": "NUMBER_DOUBLE", "name": "STRING", "dry": "BOOLEAN"}
    spec["root"]["inputDefinitions"] = {
        "parameters": {
            name: {"parameterType": kind, "isOptional": True} for name, kind in kinds.items()
        }
    }
    file = tmp_path / "with-parameters.yaml"
    file.write_text(yaml.safe_dump(spec))
    given = ("rows=3", "rate=1", "name=a=b", "dry=true")
    assert submit(*(f"--parameter={each}" for each in given), spec=file) == 0
    (run,) = server.runs.values()
    assert run.runtime_config.parameters == {"rows": 3, "rate": 1, "name": "a=b", "dry": True}
    assert submit("--parameter=rows=many", spec=file) == 2
    told = capsys.readouterr().err
    assert "--parameter rows=many: the pipeline's parameter is of type NUMBER_INTEGER" in told
    assert submit("--parameter=x=1", spec=file) == 2
    assert "no parameter of this name; it has dry, name, rate, rows." in capsys.readouterr().err


def test_wait_shows_a_line_per_node_and_ends_with_the_run(server, capsys):
    server.polls = [
        run_now("PENDING"),
        run_now("RUNNING", {"ArrowExampleGen": "RUNNING"}),
        run_now("RUNNING", {"ArrowExampleGen": "SUCCEEDED", "StatisticsGen": "PENDING"}),
        run_now("RUNNING", {"ArrowExampleGen": "SUCCEEDED", "StatisticsGen": "RUNNING"}),
        run_now(
            "SUCCEEDED",
            {"ArrowExampleGen": "SUCCEEDED", "StatisticsGen": ("SUCCEEDED", "SKIPPED")},
        ),
    ]
    assert submit("--wait") == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert lines == [
        "[ 1/11] ArrowExampleGen: done in 1 min 00 s",
        "[ 3/11] StatisticsGen: cached in 2 min 00 s",
        "",
        "Every node ran.",
    ]
    assert len(server.got(f"GET {API}/runs/run-1")) == 5


def test_a_failed_node_is_told_with_its_pod_and_those_behind_it_are_not(server, capsys):
    server.polls = [
        run_now("RUNNING", {"ArrowExampleGen": "SUCCEEDED", "Trainer": "RUNNING"}),
        run_now(
            "FAILED",
            {"ArrowExampleGen": "SUCCEEDED", "Trainer": "FAILED", "Evaluator": "SKIPPED"},
            error="task 'Trainer' errored: OOMKilled (exit code 137)",
        ),
    ]
    assert submit("--wait") == 1
    told = capsys.readouterr().out
    assert "Trainer: failed in 2 min 00 s" in told
    assert "Evaluator" not in told
    assert told.splitlines()[-4:] == [
        "Trainer failed after 2 min 00 s:",
        "Its log: kubectl logs taxi-x7-system-container-impl-112 --container main",
        "task 'Trainer' errored: OOMKilled (exit code 137)",
        f"Its page: {server.url}/#/runs/details/run-1",
    ]


def test_a_run_that_somebody_stops_is_told(server, capsys):
    server.polls = [run_now("CANCELED", {"Trainer": "CANCELED"})]
    assert submit("--wait") == 1
    assert "The run was stopped: " in capsys.readouterr().out


def test_a_server_that_is_away_for_a_moment_does_not_end_the_waiting(server, capsys):
    server.polls = [run_now("SUCCEEDED")]
    asked = server.get_run
    tries = iter([error(503, "upstream connect error"), error(500, "database is locked")])
    server.answer = lambda request: (
        next(tries, None) or asked(request, "run-1")
        if request.path == f"{API}/runs/run-1"
        else server._answer(request)
    )
    assert submit("--wait") == 0
    assert "Every node ran." in capsys.readouterr().out


def test_a_token_that_expires_while_one_waits_is_taken_anew(server, capsys):
    server.polls = [run_now("SUCCEEDED")]
    tries = iter([error(401, "token has expired")])
    server.answer = lambda request: (
        next(tries, None) or server.get_run(request, "run-1")
        if request.path == f"{API}/runs/run-1"
        else server._answer(request)
    )
    assert submit("--wait") == 0
    assert "Every node ran." in capsys.readouterr().out
    assert len(server.got(f"GET {API}/healthz")) == 2  # connected anew


def test_a_server_that_stays_away_ends_it_and_the_run_goes_on(server, capsys):
    server.failures[f"GET {API}/runs/"] = error(500, "database is locked")
    assert submit("--wait") == 1
    told = capsys.readouterr().out
    assert "cannot look at the run: 500 Internal Server Error: database is locked" in told
    assert f"The run continues: {server.url}/#/runs/details/run-1" in told
    assert "terminate_run" in told
    assert len(server.got(f"GET {API}/runs/run-1")) == 10


@pytest.mark.parametrize(
    ("request_", "answer", "words"),
    [
        ("GET /", error(401, "Request not authenticated"), ["connect: 401", "context.json"]),
        ("GET /", error(403, "forbidden"), ["connect: 403", "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID"]),
        (
            "GET /",
            error(404, "page not found"),
            ["404", "/apis/v2beta1/healthz", "ENDPOINT is http"],
        ),
        (
            "GET /",
            Answer(b"<html><h1>Sign in</h1> to your account</html>", kind="text/html"),
            ["answers with no JSON object but 'Sign in to your account'", "login page"],
        ),
        (
            f"POST {API}/pipelines/upload",
            error(400, "Failed to load the spec: unknown template format"),
            ["cannot upload the pipeline: 400 Bad Request: Failed to load the spec"],
        ),
        (
            f"GET {API}/experiments",
            error(400, "Invalid input error: In multi-user mode, namespace is empty"),
            [
                "multi-user mode, namespace is empty",
                'context.json has to name your namespace: {"namespace": ...}.',
            ],
        ),
        (
            f"POST {API}/pipelines/upload",
            error(409, "Already exist error"),
            ["409 Conflict: Already exist error. The name is taken, perhaps in another namespace"],
        ),
        (
            f"POST {API}/pipelines/upload",
            Answer(b"<html>413</html>", 413, kind="text/html"),
            ["cannot upload the pipeline: 413 ", " Too Large: 413."],
        ),
        (
            f"POST {API}/runs",
            error(500, "Internal error: failed to create a workflow"),
            ["start a run: 500", "failed to create a workflow", "logs -n kubeflow deployment/ml-"],
        ),
    ],
)
def test_server_errors_are_translated(server, capsys, request_, answer, words):
    server.failures[request_] = answer
    assert submit() == 2
    told = capsys.readouterr().err
    assert told.startswith("kubeflow: ")
    assert "Traceback" not in told
    for each in words:
        assert each in told
    assert not server.runs


def test_no_server_and_no_host_are_told(monkeypatch, capsys, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", f"http://{host}")
        assert submit() == 2
    told = capsys.readouterr().err
    assert "cannot connect: no answer (" in told
    assert "Connection refused" in told
    assert f"KF_PIPELINES_ENDPOINT is http://{host}." in told
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert submit() == 2
    assert "export KF_PIPELINES_ENDPOINT=https://host/pipeline" in capsys.readouterr().err


@pytest.mark.slow  # imports TFX
def test_a_configuration_is_compiled_and_sent_as_compile_writes_it(server, tmp_path, capsys):
    profile = {
        "image": "registry.example/x:1",
        "pipeline_root": "s3://bucket/root",
        "data_path": "s3://bucket/data/data.csv",
    }
    given = ["--target", "kubeflow", "--config", "examples/taxi/pipeline.yaml"]
    given += [f"--set=cluster.kubeflow.{name}={value}" for name, value in profile.items()]
    file = tmp_path / "compiled.yaml"
    assert main(["compile", *given, "--output", str(file)]) == 0
    assert main(["submit", *given]) == 0
    assert server.uploaded["version-1"] == file.read_bytes()
    assert "Compiled chicago-taxi for kubeflow\nUploaded: " in capsys.readouterr().out
    assert main(["submit", *given, "--set=cluster.kubeflow.image=registry.example/x"]) == 2
    assert "cluster.kubeflow.image=registry.example/x: no tag" in capsys.readouterr().err
    assert len(server.runs) == 1


@pytest.mark.parametrize(
    ("file", "package", "command"),
    [
        ("taxi-kubeflow.yaml", "kfp", "pip install 'tfx-largebatch[pipeline]'"),
        (
            "taxi-vertex.json",
            "google.cloud.aiplatform_v1",
            "pip install google-cloud-aiplatform",
        ),
    ],
)
def test_a_client_that_is_not_installed_is_told_with_its_command(
    monkeypatch, capsys, file, package, command
):
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    parent, _, name = package.rpartition(".")
    if parent in sys.modules:
        monkeypatch.delattr(sys.modules[parent], name, raising=False)
    assert submit(spec=GOLDEN.with_name(file)) == 2
    assert command in capsys.readouterr().err


def test_no_client_of_a_platform_is_imported_before_it_is_used():
    modules = [f"pipeline.targets.{name}" for name in ("submit", "schedules", "field_checks")]
    clients = ("kubeflow_client", "vertex_client", "kubeflow_schedules", "vertex_schedules")
    modules += [f"pipeline.platforms.{name}" for name in (*clients, "waiting")]
    clouds = ("kfp", "kfp_server_api", "google.api_core", "google.auth", "kubernetes", "tfx")
    code = (
        "import sys, pipeline.cli.cli\n"
        f"import {', '.join(modules)}\n"
        f"print(*sorted(set(sys.modules) & set({clouds!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_files_of_another_target_and_no_file_are_refused(server, tmp_path, capsys):
    assert submit("--target", "vertex") == 2
    assert "compiled for kubeflow, and --target says vertex" in capsys.readouterr().err
    assert main(["submit", "--target", "kubeflow"]) == 2
    assert "give --target and --config, or --spec" in capsys.readouterr().err


def test_ctrl_c_leaves_the_run_and_the_context_file_has_the_cookie(server, tmp_path):
    """In a process of its own: KFP's client reads the home folder when it is imported."""
    server.polls = [run_now("RUNNING", {"ArrowExampleGen": "RUNNING"})]
    server.cookie = "authservice_session=secret"
    context = tmp_path / ".config" / "kfp" / "context.json"
    context.parent.mkdir(parents=True)
    context.write_text(json.dumps({"namespace": "", "client_authentication_cookie": server.cookie}))
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "submit", "--spec", str(GOLDEN), "--wait"],
        env={"HOME": str(tmp_path), "KF_PIPELINES_ENDPOINT": server.url, "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever runs the tests in a shell's background has them ignore SIGINT, and all they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[2].startswith("Its page: "), lines
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"The run continues: {server.url}/#/runs/details/run-1" in told
    assert 'kfp.Client().terminate_run("run-1")' in told
    assert "Traceback" not in told


def test_kubectls_configuration_leads_to_the_server_through_kubernetes(server, tmp_path):
    """In a process of its own: Kubernetes' client reads KUBECONFIG when it is imported."""
    proxy = "/api/v1/namespaces/kubeflow/services/ml-pipeline:http/proxy/"
    answer = server.answer
    server.answer = lambda request: (
        answer(replace(request, path=request.path.removeprefix(proxy)))
        if request.path.startswith(proxy) and request.headers["authorization"] == "Bearer secret"
        else error(401, "Unauthorized")
    )
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "submit", "--spec", str(GOLDEN)],
        env={"HOME": str(tmp_path), "KUBECONFIG": str(file), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(server.runs) == 1
    assert (
        "Its page: /#/runs/details/run-1 of Kubeflow's pages, which KF_PIPELINES_UI" in done.stdout
    )


def test_seconds_are_above_zero(capsys):
    assert submit("--wait", "--poll", "0") == 2
    assert "0: give a number of seconds above 0" in capsys.readouterr().err
