"""Sizes of record batches, and what Beam does with them."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.worker import data_plane
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import userstate
from apache_beam.utils import shared
from tensorflow_transform.beam import impl

from components.arrow_example_gen.write_parquet import ArrowCoder, WriteParquet
from components.transform import record_batches
from components.transform.record_batches import (
    _BATCH_BYTES,
    MESSAGE_BYTES,
    BoundedParquet,
    _cut,
)


def table_of(rows: int, values: int) -> pa.Table:
    """Rows of this many float32, numbered."""
    flat = np.repeat(np.arange(rows, dtype=np.float32), values)
    lists = pa.LargeListArray.from_arrays(pa.array(np.arange(rows + 1) * values), pa.array(flat))
    return pa.table({"x": lists})


@pytest.mark.parametrize(
    ("rows", "values", "most"), [(40_000, 1, 16_384), (100, 2**16, 63), (3, 2**22, 1), (0, 1, 0)]
)
def test_batches_are_cut_by_rows_and_bytes(rows, values, most):
    whole = table_of(rows, values)
    parts = list(_cut(whole))
    assert max((part.num_rows for part in parts), default=0) == most
    assert pa.Table.from_batches(parts, whole.schema).equals(whole)


def test_a_batch_of_pictures_is_a_mebibyte():
    files = pa.array([b"x" * 2**10] * 4000, pa.large_binary())
    lists = pa.LargeListArray.from_arrays(pa.array(np.arange(4001)), files)
    for column in (files, lists):
        sizes = [part.num_rows for part in _cut(pa.table({"image": column}))]
        assert max(sizes) <= MESSAGE_BYTES // 2**10


@pytest.mark.parametrize(
    ("runner", "most"), [(FnApiRunner(), _BATCH_BYTES), (PortableRunner(), MESSAGE_BYTES)]
)
def test_batches_behind_a_job_server_are_small_messages(tmp_path, runner, most):
    pq.write_table(table_of(10, 1), tmp_path / "rows.parquet")
    pipeline = beam.Pipeline(runner)
    batches = pipeline | BoundedParquet(str(tmp_path / "*.parquet")).BeamSource()
    assert batches.producer.transform.args == [most]


@pytest.mark.parametrize("coder", [ArrowCoder(pa.RecordBatch), ArrowCoder(pa.Table)])
def test_arrow_data_survive_their_coder(coder):
    kind = coder.to_type_hint()
    assert isinstance(beam.coders.registry.get_coder(kind), type(coder))
    table = table_of(100, 3).slice(10, 50)  # a part of its buffers
    value = table if kind is pa.Table else table.to_batches()[0]
    assert coder.decode(coder.encode(value)).equals(value)
    assert coder.estimate_size(value) == value.nbytes
    empty = value.slice(0, 0)
    assert coder.decode(coder.encode(empty)).equals(empty)


def test_beam_encodes_nothing_to_learn_its_size(tmp_path, monkeypatch):
    """By default Beam encodes or pickles the first ten elements of each step."""
    pq.write_table(table_of(40_000, 1), tmp_path / "rows.parquet")
    encoded = []

    def forbidden(self, value):
        encoded.append(type(value))
        return b""

    monkeypatch.setattr(ArrowCoder, "encode", forbidden)
    dumps = pickle.dumps

    def noted(value, *arguments):
        encoded.extend([type(value)] * isinstance(value, pa.RecordBatch | pa.Table))
        return dumps(value, *arguments)

    monkeypatch.setattr("apache_beam.coders.coders.pickle.dumps", noted)
    with beam.Pipeline("FnApiRunner") as pipeline:
        batches = pipeline | BoundedParquet(str(tmp_path / "*.parquet")).BeamSource()
        counts = batches | beam.Map(lambda batch: batch.num_rows)
        assert_that(counts, equal_to([7_232, 16_384, 16_384]))
        _ = batches | WriteParquet(str(tmp_path / "split" / "rows"))
    assert encoded == []


def test_messages_of_workers_are_small():
    """The sizes of the messages for 30 elements of 100 kB."""
    sizes = []
    stream = data_plane.ClosableOutputStream.create(
        lambda data: sizes.append(len(data)), lambda data: sizes.append(len(data)), 0
    )
    for _ in range(30):
        stream.write(b"0" * 100_000)
        stream.maybe_flush()
    stream.close()
    assert sizes == [1_100_000, 1_100_000, 800_000]


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
    first, second = step(record_batches._ApplyGraph, graph), step(record_batches._ApplyGraph, graph)
    assert list(first.process(1, "of the first")) == [(1, "of the first")]
    assert list(second.process(2, "of the second")) == [(2, "of the second")]
    assert list(first.process(3, "of the second")) == [(3, "of the second")]
    assert first._graph_state is second._graph_state  # one of them loaded it
    assert impl._RunMetaGraphDoFn is record_batches._ApplyGraph


def test_each_kind_of_dofn_keeps_its_own_state():
    """Beam is made to inspect a class once; two classes may share a method."""
    spec = userstate.ReadModifyWriteStateSpec("state", VarIntCoder())
    parameter = beam.DoFn.StateParam(spec)

    class Plain(beam.DoFn):
        def process(self, element):
            yield element

    class Stateful(Plain):
        def start_bundle(self, state=parameter):
            pass

    for _ in range(2):
        assert userstate.get_dofn_specs(Plain()) == (set(), set())
        assert userstate.get_dofn_specs(Stateful()) == ({spec}, set())
