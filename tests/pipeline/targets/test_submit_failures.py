"""`submit` and servers that fail in odd ways: a message each time, on both platforms."""

from __future__ import annotations

import json

import kfp
from loopback import Answer
from submitting import API, submit

from pipeline.platforms.platform import connection_error

FIRST = {"kubeflow": f"GET {API}/healthz", "vertex": "POST /v1/projects"}


def test_a_server_that_is_too_slow_is_named_with_the_option(platform, server, capsys):
    for drip in (0.0, 5.0):
        server.failures[FIRST[platform]] = Answer({"a": 1}, seconds=5.0 - drip, drip=drip)
        assert submit(platform, "--timeout", "1") == 2
        printed = capsys.readouterr().err
        assert printed.startswith(f"{platform}: cannot ")
        assert "timed out" in printed
        assert "If the server is slow, raise --timeout." in printed


def test_a_success_that_is_no_answer_of_the_api_is_reported(platform, server, capsys):
    """For Kubeflow on each of the requests of a submission, one after the other."""
    places = [f"GET {API}/pipelines", f"POST {API}/pipelines/upload", f"POST {API}/runs"]
    for body in (
        *(b"<html><h1>Sign in</h1></html>", b"", b"null", b"5", b"[" * 100_000),
        b'{"name": 5, "run_id": [], "pipelines": 5, "state": "x"}',
        b'{"name": "x/y", "pipelines": [{"pipeline_id": "$(reboot)"}], "multi_user": "x"}',
    ):
        for place in places if platform == "kubeflow" else [FIRST["vertex"]]:
            server.failures.clear()
            server.pipelines.clear() if platform == "kubeflow" else None
            server.failures[place] = Answer(body, kind="text/html")
            assert submit(platform) == 2, (place, body[:80])
            printed = capsys.readouterr().err
            assert printed.startswith(f"{platform}: ")
            assert "Traceback" not in printed
            assert "a login page" in printed or b"Sign in" not in body


def test_a_private_ca_is_named_by_a_variable(kubeflow, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    assert submit("kubeflow") == 2
    assert f"REQUESTS_CA_BUNDLE={tmp_path / 'none.pem'}: no such" in capsys.readouterr().err
    used = []
    monkeypatch.setattr(kfp.Client, "__init__", lambda self, ssl_ca_cert: used.append(ssl_ca_cert))
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    assert submit("kubeflow") == 2  # that client is none
    assert used == [str(tmp_path / "ca.pem")]
    error = connection_error("connect", "certificate: CERTIFICATE_VERIFY_FAILED", "")
    assert "export REQUESTS_CA_BUNDLE=" in str(error)


def test_a_server_without_tls_is_named(kubeflow, capsys, monkeypatch):
    """KFP's client takes an address without a scheme as https://."""
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", kubeflow.url.replace("http://", ""))
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


def test_a_password_in_the_address_is_shown_nowhere(platform, server, monkeypatch, capsys):
    variables = {
        "kubeflow": "KF_PIPELINES_ENDPOINT",
        "vertex": "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM",
    }
    place = server.url.replace("http://", "http://user:secret@")
    monkeypatch.setenv(variables[platform], place)
    answers = [Answer({}, 404), Answer(b"<html>"), Answer(b"[]"), Answer({}, 401), Answer({}, 400)]
    first = {"kubeflow": "GET /", "vertex": FIRST["vertex"]}[platform]
    for failure in answers:
        server.failures[first] = failure
        assert submit(platform) == 2
        printed = capsys.readouterr()
        assert "secret" not in printed.err + printed.out
    monkeypatch.setenv(variables[platform], "http://user:secret@127.0.0.1:1")  # nobody there
    assert submit(platform, "--timeout", "1") == 2
    assert "secret" not in capsys.readouterr().err
    if platform == "kubeflow":
        server.failures.clear()
        monkeypatch.setenv(variables[platform], place)
        assert submit(platform) == 0
        assert f"Its page: {server.url}/#/runs/details/run-1" in capsys.readouterr().out


def use_context(monkeypatch, folder, content):
    """Write the file that KFP's client reads."""
    file = folder / "context.json"
    file.write_text(content)
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(file))


def test_servers_older_than_what_is_compiled_are_refused(kubeflow, capsys, monkeypatch, tmp_path):
    """KFP's client asks for the server's health only without a namespace; a gateway may hide it."""
    for version in ("2.17.0", "unknown", None):
        kubeflow.version = version
        assert submit("kubeflow") == 0
    started = len(kubeflow.runs)
    for version in ("2.4.1", "v2.3.0", "1.8.22"):
        kubeflow.version = version
        assert submit("kubeflow") == 2
        assert f"is Kubeflow Pipelines {version}; 2.5 or newer" in capsys.readouterr().err
    use_context(monkeypatch, tmp_path, '{"namespace": "team"}')
    assert submit("kubeflow") == 2
    assert len(kubeflow.runs) == started
    kubeflow.failures[f"GET {API}/healthz"] = Answer({}, 404)
    assert submit("kubeflow") == 0


def test_a_context_file_that_the_client_cannot_read_is_named(
    kubeflow, monkeypatch, tmp_path, capsys
):
    for content in ("{", "[]", "{}", '{"client_authentication_cookie": "secret"}'):
        use_context(monkeypatch, tmp_path, content)
        assert submit("kubeflow") == 2
        printed = capsys.readouterr().err
        assert "context.json is not of the form " in printed
        assert "secret" not in printed
    cookie = {"client_authentication_cookie": "secret\nsecret"}
    use_context(monkeypatch, tmp_path, json.dumps({"namespace": "", **cookie}))
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
