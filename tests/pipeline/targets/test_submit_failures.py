"""`submit` and servers that fail in odd ways: a message each time, on both platforms."""

from __future__ import annotations

import json

import kfp
import pytest
from certificates import write_certificates
from kubeflow_server import run_now
from loopback import Answer
from submitting import API, submit
from vertex_server import error as google_error
from vertex_server import job_now

FIRST = {"kubeflow": f"GET {API}/healthz", "vertex": "POST /v1/projects"}


@pytest.mark.parametrize("drip", [0.0, 5.0])
def test_a_server_that_is_too_slow_is_named_with_the_option(platform, server, capsys, drip):
    server.failures[FIRST[platform]] = Answer({"a": 1}, seconds=5.0 - drip, drip=drip)
    assert submit(platform, "--timeout", "1") == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"{platform}: cannot ")
    assert "timed out" in printed
    assert "If the server is slow, raise --timeout." in printed


@pytest.mark.parametrize(
    "body",
    [
        *(b"<html><h1>Sign in</h1></html>", b"", b"null", b"5", b"[" * 100_000),
        b'{"name": 5, "run_id": [], "pipelines": 5, "state": "x"}',
        b'{"name": "x/y", "pipelines": [{"pipeline_id": "$(reboot)"}], "multi_user": "x"}',
    ],
)
def test_a_success_that_is_no_answer_of_the_api_is_reported(platform, server, capsys, body):
    """For Kubeflow on each of the requests of a submission, one after the other."""
    places = [f"GET {API}/pipelines", f"POST {API}/pipelines/upload", f"POST {API}/runs"]
    for place in places if platform == "kubeflow" else [FIRST["vertex"]]:
        server.failures.clear()
        server.pipelines.clear() if platform == "kubeflow" else None
        server.failures[place] = Answer(body, kind="text/html")
        assert submit(platform) == 2, place
        printed = capsys.readouterr().err
        assert printed.startswith(f"{platform}: ")
        assert "Traceback" not in printed
        assert "a login page" in printed or b"Sign in" not in body


def test_a_private_ca_is_named_by_a_variable(kubeflow, capsys, monkeypatch, tmp_path):
    """Against a server with TLS, whose certificate no CA of this machine has signed."""
    files = write_certificates(tmp_path)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    with kubeflow.serving(tls=files):
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", kubeflow.url)
        assert submit("kubeflow") == 2
        printed = capsys.readouterr().err
        assert "CERTIFICATE_VERIFY_FAILED" in printed
        assert "export REQUESTS_CA_BUNDLE=" in printed
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
        assert submit("kubeflow") == 2
        assert f"REQUESTS_CA_BUNDLE={tmp_path / 'none.pem'}: no such" in capsys.readouterr().err
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(files.authority))
        assert submit("kubeflow") == 0, capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["", "https://"])
def test_a_server_without_tls_is_named(kubeflow, capsys, monkeypatch, scheme):
    """KFP's client takes an address without a scheme as https://."""
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", kubeflow.url.replace("http://", scheme))
    assert submit("kubeflow") == 2
    assert "use an address that begins with http://" in capsys.readouterr().err


def test_a_redirection_is_reported_and_not_followed(kubeflow, capsys):
    kubeflow.failures["GET /"] = Answer(
        b"x", 302, headers={"Location": "https://user:secret@login.example/\x1b[2J?a=b"}
    )
    assert submit("kubeflow") == 2
    printed = capsys.readouterr().err
    assert "redirects to https://login.example/\\x1b[2J?a=b: a login page" in printed
    assert len(kubeflow.requests) == 1


def test_a_message_of_a_server_is_printed_as_text(kubeflow, capsys):
    """Neither escape sequences nor rich's markup and emoji names act on the terminal."""
    said = "\x1b]0;title\x07 [bold red]x[/] :bug: [link=http://evil]y http://a:b@host"
    kubeflow.polls = [run_now("FAILED", {"Trainer": "FAILED"}, error=said)]
    assert submit("kubeflow", "--wait") == 1
    assert (
        "\\x1b]0;title\\x07 [bold red]x[/] :bug: [link=http://evil]y http://host"
        in capsys.readouterr().out
    )


def test_a_message_of_vertex_is_printed_as_text(vertex, capsys):
    said = "\x1b[2J [bold]x[/bold] :bug: http://a:b@host"
    job = {"executor_detail": {"container_detail": {"main_job": "x/$(reboot)"}}}
    failed = ("FAILED", {**job, "error": {"code": 9, "message": said}})
    vertex.polls = [job_now("FAILED", said, Trainer=failed)]
    assert submit("vertex", "--wait") == 1
    out = capsys.readouterr().out
    assert "\\x1b[2J [bold]x[/bold] :bug: http://host" in out
    assert "resource.labels.job_id='$(reboot)'" in out
    vertex.failures["POST /v1/projects"] = google_error(403, "PERMISSION_DENIED", said)
    assert submit("vertex") == 2
    assert "403 \\x1b[2J [bold]x[/bold] :bug: http://host" in capsys.readouterr().err


def test_a_password_in_the_address_is_shown_nowhere(kubeflow, monkeypatch, capsys):
    place = kubeflow.url.replace("http://", "http://user:secret@")
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", place)
    assert submit("kubeflow") == 0
    assert f"Its page: {kubeflow.url}/#/runs/details/run-1" in capsys.readouterr().out
    for failure in (Answer({}, 404), Answer(b"<html>"), Answer({}, 401), Answer({}, 400)):
        kubeflow.failures["GET /"] = failure
        assert submit("kubeflow") == 2
        printed = capsys.readouterr()
        assert "secret" not in printed.err + printed.out
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", "http://user:secret@127.0.0.1:1")  # nobody there
    assert submit("kubeflow") == 2
    printed = capsys.readouterr().err
    assert "secret" not in printed
    assert "KF_PIPELINES_ENDPOINT is http://127.0.0.1:1." in printed


def test_a_password_in_vertex_address_is_shown_nowhere(vertex, monkeypatch, capsys):
    place = vertex.url.replace("http://", "http://user:secret@")
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM", place)
    for failure in (Answer({}, 404), Answer(b"<html>"), Answer(b"[]"), Answer({"name": "x"})):
        vertex.failures["POST /v1/projects"] = failure
        assert submit("vertex") == 2
        printed = capsys.readouterr()
        assert "secret" not in printed.err + printed.out


@pytest.mark.parametrize(
    ("version", "code"),
    [
        *(("2.4.1", 2), ("v2.3.0", 2), ("1.8.22", 2), ("2.17.0", 0), ("unknown", 0), (None, 0)),
    ],
)
def test_servers_older_than_what_is_compiled_are_refused(kubeflow, capsys, version, code):
    kubeflow.version = version
    assert submit("kubeflow") == code
    if code:
        assert (
            f"the server is Kubeflow Pipelines {version}; 2.5 or newer" in capsys.readouterr().err
        )
        assert not kubeflow.runs


def test_the_version_is_checked_for_users_with_a_namespace(kubeflow, monkeypatch, tmp_path, capsys):
    """KFP's client asks for the server's health only without one; a gateway may hide it."""
    file = tmp_path / "context.json"
    file.write_text(json.dumps({"namespace": "team"}))
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(file))
    kubeflow.version = "2.4.0"
    assert submit("kubeflow") == 2
    assert "the server is Kubeflow Pipelines 2.4.0" in capsys.readouterr().err
    kubeflow.failures[f"GET {API}/healthz"] = Answer({}, 404)
    assert submit("kubeflow") == 0


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"client_authentication_cookie": "secret"}', b"\xff\xfe"]
)
def test_a_context_file_that_the_client_cannot_read_is_named(
    kubeflow, monkeypatch, tmp_path, capsys, content
):
    file = tmp_path / "context.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(file))
    assert submit("kubeflow") == 2
    printed = capsys.readouterr().err
    assert "context.json is not of the form " in printed
    assert "secret" not in printed


def test_a_cookie_that_is_no_header_is_not_shown(kubeflow, monkeypatch, tmp_path, capsys):
    file = tmp_path / "context.json"
    cookie = {"client_authentication_cookie": "secret\nsecret"}
    file.write_text(json.dumps({"namespace": "", **cookie}))
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(file))
    assert submit("kubeflow") == 2
    printed = capsys.readouterr().err
    assert "Invalid header value" in printed
    assert "secret" not in printed


def test_a_key_file_that_is_none_is_reported(vertex, monkeypatch, tmp_path, capsys, google_key):
    account = json.loads(google_key.read_text())
    file = tmp_path / "key.json"
    for content in ("", "{}", "[]", json.dumps({**account, "private_key": "secret"})):
        file.write_text(content)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        assert submit("vertex") == 2
        printed = capsys.readouterr().err
        assert printed.startswith("vertex: ")
        assert "secret" not in printed
