"""A worker that applied the graph of a job's first attempt applies that of the second."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.utils import shared
from tensorflow_transform.beam import impl

import transform
from transform import restarts

THEIRS = restarts._ApplyGraph.__base__


def step(kind: Any, graph: shared.Shared) -> Any:
    """A step as a worker gets it, whose graphs say which folder they are of."""
    made = kind(
        tf_config=None,
        shared_graph_state_handle=graph,
        passthrough_keys=set(),
        use_tf_compat_v1=False,
        input_tensor_adapter_config=SimpleNamespace(tensor_representations={}),
    )
    made = pickle.loads(pickle.dumps(made))
    made._make_graph_state = lambda folder: kind._GraphStateCommon(folder, [], [], None)
    made._handle_batch = lambda batch: (batch, made._graph_state.saved_model_dir)
    return made


def test_a_second_attempt_in_the_same_process_gets_its_own_graph():
    graph = shared.Shared()
    first, second = step(restarts._ApplyGraph, graph), step(restarts._ApplyGraph, graph)
    assert list(first.process(1, "of the first")) == [(1, "of the first")]
    assert list(second.process(2, "of the second")) == [(2, "of the second")]
    assert list(first.process(3, "of the second")) == [(3, "of the second")]
    assert first._graph_state is second._graph_state  # one of them loaded it


def test_without_it_tft_asserts(monkeypatch):
    # Pickle finds a class by its name, which a Transform in this process may have given away.
    monkeypatch.setattr(impl, "_RunMetaGraphDoFn", THEIRS)
    graph = shared.Shared()
    first, second = step(THEIRS, graph), step(THEIRS, graph)
    list(first.process(1, "of the first"))
    with pytest.raises(AssertionError):
        list(second.process(2, "of the second"))


def test_the_preprocessing_fn_asks_for_it(monkeypatch):
    monkeypatch.setattr(impl, "_RunMetaGraphDoFn", THEIRS)
    with pytest.raises(ValueError, match="no feature specification"):
        transform.preprocessing_fn({}, {})
    assert impl._RunMetaGraphDoFn is restarts._ApplyGraph
