"""The user's function: found, called, and what its columns rest on."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from tensorflow_metadata.proto.v0 import schema_pb2  # noqa: E402

from transform.columns.derive import (  # noqa: E402
    derive_reads,
    derived_columns,
    derived_types,
    load,
    raw_sources,
    refuse_leaks,
)

MODULE = "derive_for_derive_tests"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], str]:
    module = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)

    def add(function: Any) -> str:
        module.f = function  # type: ignore[attr-defined]
        return f"{MODULE}.f"

    return add


def _schema() -> schema_pb2.Schema:
    schema = schema_pb2.Schema()
    schema.feature.add(name="fare", type=schema_pb2.FLOAT)
    schema.feature.add(name="town", type=schema_pb2.BYTES)
    return schema


def test_types_and_sources_come_from_a_trace(named: Any) -> None:
    path = named(lambda inputs: {"double": tf.sparse.to_dense(inputs["fare"]) * 2.0})
    assert derived_types(path, _schema()) == {"double": "float"}
    assert derive_reads(path, _schema()) == {"fare"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda inputs: [1], "returned list; return a dict of new columns"),
        (lambda inputs: {"fare": 1}, "returned column 'fare', which the data has already"),
        (lambda inputs: inputs["fair"], "wants column 'fair' that the data lacks"),
        (lambda inputs: 1 / 0, "failed: ZeroDivisionError"),
    ],
)
def test_errors_of_a_function_name_it(named: Any, function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        derived_columns(named(function), {"fare": tf.constant([1.0])})


def test_a_wrong_path_is_refused(named: Any) -> None:
    named(len)
    with pytest.raises(ValueError, match="has no function 'g'; it has: f"):
        load(f"{MODULE}.g")
    with pytest.raises(ValueError, match="cannot be imported: ModuleNotFoundError"):
        load("no_such_module_of_ours.f")


def test_a_feature_must_not_rest_on_the_labels_columns() -> None:
    with tf.Graph().as_default():
        inputs = {name: tf.compat.v1.placeholder(tf.float32, [None]) for name in ("tips", "fare")}
        columns = {**inputs, "ratio": inputs["tips"] / inputs["fare"], "twice": inputs["fare"] * 2}
        assert raw_sources([columns["ratio"]], inputs) == {"tips", "fare"}
        refuse_leaks(["twice"], columns, inputs, {"tips"})
        with pytest.raises(ValueError, match="'ratio' is computed from 'tips', which is in label"):
            refuse_leaks(["twice", "ratio"], columns, inputs, {"tips"})
