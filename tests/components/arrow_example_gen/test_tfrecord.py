"""TFRecord files in blocks: against TensorFlow's own reader, and errors of bad records."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from components import ArrowExampleGen, CsvOptions
from components.arrow_example_gen import tfrecord
from components.arrow_example_gen.columns import Block, as_batch
from components.arrow_example_gen.tfrecord import TfrecordTable

KINDS = {"int": "int64_list", "float": "float_list", "string": "bytes_list"}


def example(**features: Any) -> bytes:
    """A list of values for each feature; None: a feature without a kind."""
    made = tf.train.Example()
    for name, values in features.items():
        feature = made.features.feature[name]
        if values is not None:
            kind = {int: "int64_list", float: "float_list", bytes: "bytes_list"}[type(values[0])]
            getattr(feature, kind).value.extend(values)
    return made.SerializeToString(deterministic=True)


def write(file: Path, records: list[bytes], compression: str = "") -> str:
    with tf.io.TFRecordWriter(str(file), compression) as writer:
        for record in records:
            writer.write(record)
    return str(file)


def blocks(file: str, **options: Any) -> Iterator[Block]:
    return TfrecordTable((file,)).all_blocks(**options)


def kinds_of(*files: str) -> Any:
    table = TfrecordTable(files)
    return table.agree([(p, table.examine(p)) for file in files for p in table.parts(file)])[0]


FEATURES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.none() | st.integers(0, 3),
).map(
    lambda drawn: {
        name: None if size is None or not size else [{"a": 7, "b": 0.5, "c": b""}[name]] * size
        for name, size in drawn.items()
    }
)


@settings(max_examples=40)
@given(st.lists(FEATURES, max_size=12), st.integers(1, 4), st.sampled_from(["", "GZIP"]))
def test_rows_arrive_as_they_are_with_every_column(tmp_path_factory, rows, size, compression):
    """Reference: the same rows, where a feature that a record lacks is one without values."""
    file = write(tmp_path_factory.mktemp("rows") / "a", [example(**r) for r in rows], compression)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord, "_BLOCK_RECORDS", size)
        read = list(blocks(file))
    assert [block.places[0] for block in read] == list(range(0, len(rows), size))
    table, kinds = TfrecordTable((file,)), kinds_of(file)
    assert set(kinds) == {name for row in rows for name in row}
    found = [
        row
        for block in read
        for row in as_batch(table.decoded(block, kinds), kinds, len(block.places)).to_pylist()
    ]
    for row, each in zip(rows if kinds else [], found, strict=True):  # rows need a column
        assert {name: held or [] for name, held in each.items()} == {
            name: row.get(name) or [] for name in kinds
        }


def test_blocks_are_bounded_by_their_bytes(tmp_path, monkeypatch):
    file = write(tmp_path / "a", [example(text=[b"x" * 1000])] * 10)
    monkeypatch.setattr(tfrecord, "_BLOCK_BYTES", 3000)
    assert [len(block.places) for block in blocks(file)] == [3, 3, 3, 1]


def test_a_feature_of_two_types(tmp_path):
    one = write(tmp_path / "one", [example(x=[1]), example(x=None), example(x=[0.5])])
    message = f"{one}, record 3: feature 'x' is a float_list, and in {one}, record 1 a int64_list"
    with pytest.raises(ValueError, match=re.escape(message)):
        kinds_of(one)
    other = write(tmp_path / "two", [example(x=[b"a"])])
    first = write(tmp_path / "three", [example(y=[1]), example(x=[2])])
    with pytest.raises(ValueError, match=r"two, record 1: .*three, record 2 a int64_list"):
        kinds_of(first, other)


def damaged(tmp_path: Path, how: str) -> str:
    """Five records, the third of them damaged."""
    records = [example(x=[i]) for i in range(5)]
    file = Path(write(tmp_path / "rows.tfrecord", records))
    data = bytearray(file.read_bytes())
    third = 2 * (len(records[0]) + 16)
    if how == "checksum":
        data[third + 14] ^= 1
    elif how == "length":
        data[third] ^= 1
    elif how == "cut off":
        data = data[: third + 20]
    elif how == "no example":
        write(file, [*records[:2], b"nothing", *records[3:]])
        data = bytearray(file.read_bytes())
    elif how == "gzip cut off":
        data = bytearray(gzip.compress(data))[:-10]
    file.write_bytes(data)
    return str(file)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("checksum", "record 3: its checksum is not that of its bytes"),
        ("length", "record 3: damaged, its length is unknown"),
        ("cut off", "record 3: the file ends in the middle of it"),
        ("no example", "record 3: is not a tf.Example"),
        ("gzip cut off", "record 1 or a later one: cannot be decompressed"),
    ],
)
def test_a_wrong_record_is_an_error_with_its_number(tmp_path, how, message):
    file = damaged(tmp_path, how)
    with pytest.raises(ValueError, match=re.escape(f"{file}, {message}")):
        list(blocks(file))


@pytest.mark.parametrize("how", ["checksum", "no example"])
def test_a_record_can_be_passed_over(tmp_path, how):
    unreadable: list[str] = []
    read = list(blocks(damaged(tmp_path, how), unreadable=unreadable))
    assert [v for block in read for (v,) in block.cells["x"].to_pylist()] == [0, 1, 3, 4]
    assert np.concatenate([block.places for block in read]).tolist() == [0, 1, 2, 3]
    assert len(unreadable) == 1
    assert "record 3" in unreadable[0]


def test_another_format_is_no_tfrecord(tmp_path):
    (tmp_path / "a").write_text("name,price\nx,1\n")
    (tmp_path / "b").write_bytes(gzip.compress(b"name,price\nx,1\n"))
    for name in "ab":
        with pytest.raises(ValueError, match=f"{name} is not a TFRecord file"):
            list(blocks(str(tmp_path / name)))


def test_one_format_at_a_time():
    with pytest.raises(ValueError, match="name different formats"):
        ArrowExampleGen(input_base=".", csv=CsvOptions(), tfrecord=True)
