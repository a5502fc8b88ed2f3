"""KFP's `context.json`: what its client cannot read is refused with a message, values unseen."""

from __future__ import annotations

import itertools
import json

import kfp
import pytest
from compiled_taxi import FILES
from kubeflow_server import KubeflowServer

from pipeline.cli.cli import main
from pipeline.platforms.kfp_context import check_context_file
from pipeline.platforms.platform import PlatformError

COOKIE = "client_authentication_cookie"
NAME = "client_authentication_header_name"
VALUE = "client_authentication_header_value"
KEYS = ("namespace", COOKIE, NAME, VALUE)


def written(folder, text):
    file = folder / "context.json"
    file.write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
    return file


def test_no_file_and_whole_files_are_accepted(tmp_path):
    check_context_file(tmp_path / "none.json")
    check_context_file(written(tmp_path, dict.fromkeys(KEYS, "x")))
    check_context_file(written(tmp_path, {"namespace": "", COOKIE: None, "other": 5}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({COOKIE: "secret"}, r'has no "namespace".*add "namespace": ""'),
        ({NAME: "a", VALUE: "secret"}, r'has no "namespace"'),
        ({}, r'has no "namespace"'),
        ({"namespace": "", NAME: "a"}, f'has "{NAME}" but no "{VALUE}"'),
        ({"namespace": "", VALUE: "secret"}, f'has "{VALUE}" but no "{NAME}"'),
        ({"namespace": None}, 'value of "namespace" is not a text'),
        ({"namespace": "", COOKIE: 5}, f'value of "{COOKIE}" is not a text'),
        ({"namespace": "", COOKIE: "secret\n"}, "an invalid character"),
        ({"namespace": "", NAME: "a", VALUE: "secret€"}, "an invalid character"),
        ([], "must be a JSON object"),
        (None, "must be a JSON object"),
        ("secret", "must be a JSON object"),
        (b"", "is not valid JSON"),
        (b"{namespace: secret}", "is not valid JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_other_files_are_refused_and_their_values_not_shown(tmp_path, content, message):
    file = written(tmp_path, content)
    with pytest.raises(PlatformError, match=message) as caught:
        check_context_file(file)
    assert str(file) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_folder_in_its_place_is_refused(tmp_path):
    with pytest.raises(PlatformError, match="cannot be read"):
        check_context_file(tmp_path)


@pytest.mark.parametrize(
    "keys", [keys for n in range(5) for keys in itertools.combinations(KEYS, n)], ids=str
)
def test_kfps_client_never_fails_on_what_is_accepted(keys, tmp_path, monkeypatch, capsys):
    """Every set of keys: a run, or a message that names the file; no traceback."""
    file = written(tmp_path, {key: "" if key == "namespace" else "x" for key in keys})
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(file))
    server = KubeflowServer()
    with server.serving():
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
        code = main(["submit", "--spec", str(FILES["kubeflow"])])
    out = capsys.readouterr()
    if "namespace" in keys and (NAME in keys) == (VALUE in keys):
        assert (code, "Started: run" in out.out) == (0, True)
        sent = server.requests[-1].headers
        assert sent.get("cookie") == ("x" if COOKIE in keys else None)
        assert sent.get("x") == ("x" if NAME in keys else None)
    else:
        assert code == 2
        assert str(file) in out.err
