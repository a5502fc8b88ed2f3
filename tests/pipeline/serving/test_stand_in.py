"""The stand-in for `tensorflow_model_server`, asked over HTTP.

Reference of the refusals: json_tensor.cc and api_rest.md of TensorFlow Serving 2.16.
"""

from __future__ import annotations

import json

import pytest

from pipeline.serving.server import Server, ServerError, stand_in
from pipeline.serving.stand_in import NotOnTheServer

pytestmark = pytest.mark.slow

ROW = {"size": [1.5], "rooms": [2], "the_town": ["Oslo"]}
SMALLEST = -(2**63)


@pytest.fixture(scope="module")
def server(model):
    with stand_in(model / "12") as running:
        yield running


def ask(server, body):
    return server.predict(json.dumps(body).encode())


def raw(*rows):
    return {"signature_name": "raw", "instances": list(rows)}


def test_rows_of_columns_are_answered_with_every_output(server):
    missing = {"size": [float("nan")], "rooms": [SMALLEST], "the_town": [""]}
    assert ask(server, raw(ROW, missing)) == [
        {"outputs": [13.5], "prediction": ["high"]},
        {"outputs": [0.0], "prediction": ["low ≤ 0"]},
    ]


def test_float_columns_take_integers_and_texts_take_base64(server):
    (answer,) = ask(server, raw({**ROW, "size": [1], "the_town": [{"b64": "T3Nsbw=="}]}))
    assert answer["outputs"] == [13.0]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (raw({**ROW, "rooms": [2.0]}), "element: 0 key: rooms .* not of expected type: int64"),
        (raw({**ROW, "rooms": [2**63]}), "not of expected type: int64"),
        (raw({**ROW, "size": ["1.5"]}), "not of expected type: float32"),
        (raw({**ROW, "size": [None]}), "not of expected type: float32"),
        (raw({**ROW, "the_town": [7]}), "not of expected type: string"),
        (raw({**ROW, "the_town": [{"b64": "%"}]}), "Unable to base64 decode"),
        (raw({**ROW, "city": ["Oslo"]}), "does not have named input: city"),
        (raw({"size": [1.5], "rooms": [2]}), "keys must be equal to: rooms,size,the_town"),
        (raw(ROW, {**ROW, "size": [1.5, 2.5]}), r"Expecting shape \[1\] but got: \[2\]"),
        (raw({**ROW, "size": 1.5}), "400"),
        (raw(), "list with at least one value"),
        ({"signature_name": "other", "instances": [1]}, 'signature name: "other" not found'),
        ({"instances": ["no example"]}, "400 .*Could not parse example"),
        ({}, "give one of 'instances' and 'inputs'"),
    ],
)
def test_refusals_of_the_server(server, body, reason):
    with pytest.raises(ServerError, match=reason):
        ask(server, body)


def test_other_paths_are_not_found(server):
    with pytest.raises(ServerError, match="404 Malformed request"):
        ask(Server(server.url + "s", ""), raw(ROW))


def test_a_model_that_cannot_be_loaded_is_reported_with_the_last_line(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'OSError: SavedModel file does not exist' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(ServerError, match="cannot be loaded: OSError: SavedModel file does"):
        stand_in(tmp_path, python).__enter__()


def test_this_project_is_not_importable_in_its_process():
    absent = NotOnTheServer()
    for name in ("pipeline.run", "trainer_module", "transform", "components"):
        with pytest.raises(ModuleNotFoundError, match=name):
            absent.find_spec(name)
    assert absent.find_spec("tensorflow") is None
