"""`check-serving`: rows through the server's protocol beside what `predict` gives."""

from __future__ import annotations

import itertools
import json
import sys

import pytest
from loopback import Answer, Loopback
from served_model import OUTPUTS, write_model

from pipeline.cli.cli import main

pytestmark = pytest.mark.slow


def check(model, rows, *arguments):
    return main(["check-serving", "--model", str(model), "--data", str(rows), *arguments])


@pytest.fixture
def running():
    """A server that gives the right answers to requests of the test's rows."""
    outputs = itertools.cycle(OUTPUTS)

    def answer(request):
        rows = json.loads(request.body)["instances"]
        found = list(itertools.islice(outputs, len(rows)))
        named = [{"outputs": [v], "prediction": ["high" if v > 0 else "low ≤ 0"]} for v in found]
        return Answer({"predictions": named})

    server = Loopback(answer)
    with server.serving():
        yield server


def test_both_signatures_answer_as_predict_does(model, rows, capsys):
    assert check(model, rows) == 0
    printed = capsys.readouterr().out
    assert f"{model}/12" in printed
    assert "serving_default: 3 rows answered as predict does" in printed
    assert "raw: 3 rows answered as predict does" in printed


def test_vertex_calls_the_default_signature_only(model, rows, running):
    url = f"{running.url}/v1/models/taxi"
    assert check(model, rows, "--url", url, "--target", "vertex") == 0
    bodies = [json.loads(request.body) for request in running.requests]
    assert all(list(row) == ["b64"] for body in bodies for row in body["instances"])


def test_a_running_server_gets_the_first_row_alone_and_then_the_others(
    model, rows, running, capsys
):
    url = f"{running.url}/v1/models/taxi"
    assert check(model, rows, "--url", url) == 0
    assert f"server: {url}" in capsys.readouterr().out
    bodies = [json.loads(request.body) for request in running.got("POST /v1/models/taxi:predict")]
    assert [len(body["instances"]) for body in bodies] == [1, 2, 1, 2]
    assert [body.get("signature_name") for body in bodies] == [None, None, "raw", "raw"]
    assert list(bodies[0]["instances"][0]) == ["b64"]
    assert bodies[2]["instances"] == [{"size": [1.5], "rooms": [2], "the_town": ["Oslo"]}]
    second, third = bodies[3]["instances"]
    assert str(second["size"]) == "[nan]"
    assert second["the_town"] == [""]
    assert third == {"size": [-4.0], "rooms": [-(2**63)], "the_town": ["Ås"]}


def test_fewer_rows(model, rows, running, capsys):
    assert check(model, rows, "--url", f"{running.url}/v1/models/x", "--rows", "1") != 0
    assert len(running.requests) == 2  # one of each signature; the second answer is another row's
    assert "serving_default: 1 row answered" in capsys.readouterr().out


def test_the_row_that_a_server_refuses_is_found(model, rows, running, capsys):
    answer = running.answer

    def refuse(request):
        if b"\xc3\x85s" in request.body:  # Ås
            return Answer({"error": "no such\x1b[31m town"}, 400)
        return answer(request)

    running.answer = refuse
    assert check(model, rows, "--url", f"{running.url}/v1/models/taxi") == 1
    assert f"check failed: raw, row 3 of {rows}: 400 no such [31m town" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer({"predictions": [{"outputs": [1]}] * 3}), "1 rows were sent, and the answer has"),
        (Answer({"predictions": [{"outputs": [13.5]}]}), "the answer lacks the output prediction"),
        (Answer(b"<html>"), "the answer has no predictions: b'<html>'"),
        (Answer(b'{"predictions": ["\xe5"]}'), "the answer is not UTF-8"),
        (
            Answer({"predictions": [{"outputs": [13.5], "prediction": ["low"]}]}),
            "prediction is ['low'], and predict gives ['high']",
        ),
    ],
)
def test_answers_of_another_form_fail(model, rows, running, capsys, answer, reason):
    running.answer = lambda request: answer
    assert check(model, rows, "--url", f"{running.url}/v1/models/taxi", "--rows", "1") == 1
    printed = capsys.readouterr().out
    assert (
        "check failed: serving_default, row" in printed
        or "check failed: serving_default, " in printed
    )
    assert reason in printed


@pytest.mark.parametrize(
    ("rows_text", "arguments", "reason"),
    [
        ("size,rooms\n1,2\n", (), "missing column: the town (required by the model)"),
        ("size,rooms,the town\nwide,2,x\n", (), "line 2: size='wide' is not a number"),
        ("size,rooms,the town\n", (), "has no rows"),
        (None, ("--url", "localhost:8501"), "give http://HOST:PORT/v1/models/NAME"),
        (None, ("--url", "http://h/v1/models/m", "--python", sys.executable), "--python runs the"),
        (None, ("--url", "http://me:secret@h/v1/models/m"), "has a user name or password"),
        (None, ("--python", "/no/python"), "--python=/no/python: cannot be started"),
    ],
)
def test_wrong_arguments_are_errors(model, rows, capsys, rows_text, arguments, reason):
    if rows_text is not None:
        rows.write_text(rows_text)
    assert check(model, rows, *arguments) == 2
    assert reason in capsys.readouterr().err


def test_models_that_cannot_be_checked_are_errors(tmp_path, rows, capsys):
    assert check(tmp_path, rows) == 2
    assert "no SavedModel there" in capsys.readouterr().err
    write_model(tmp_path / "3")
    (tmp_path / "3" / "assets.extra" / "raw_columns.json").unlink()
    assert check(tmp_path, rows) == 2
    assert "raw_columns.json cannot be read" in capsys.readouterr().err
    (tmp_path / "3" / "saved_model.pb").write_bytes(b"\x08\x01torn")
    assert check(tmp_path, rows) == 2
    assert "saved_model.pb is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["abc", [1, [2]], {"b": 1}])
def test_review_numbers(answer):
    import numpy as np

    from pipeline.serving.check import CheckFailed, _compare

    with pytest.raises(CheckFailed, match="predict gives"):
        _compare(answer, np.array([1.0]), "raw")


def test_review_port():
    from pipeline.serving.server import ServerError, running_server

    with pytest.raises(ServerError, match="nonnumeric port"):
        running_server("http://127.0.0.1:abc/v1/models/x").predict(b"{}")
