"""Compressed files: read by what their bytes are, as a stream, or refused by name."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from components.arrow_example_gen import decompress
from components.arrow_example_gen.decompress import content_name, open_decompressed

CONTENT = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(60_000))


def by_arrow(codec: str, data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


CODECS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: by_arrow("zstd", data),
    "lz4": lambda data: by_arrow("lz4", data),
}


def written(folder: Path, content: bytes, name: str = "rows.csv.gz") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def content_of(file: str) -> bytes:
    with open_decompressed(file) as stream:
        return stream.read()


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression(tmp_path, codec):
    """By its suffix in any case, by its first bytes, and of parts one behind the other."""
    packed = CODECS[codec](CONTENT)
    for suffix in (codec, codec.upper()):
        file = written(tmp_path, packed, f"rows.csv.{suffix}")
        assert content_of(file) == CONTENT
        assert Path(content_name(file)).suffix == ".csv"
    for name in ("rows.csv", "rows", "rows.csv.gz"):
        assert content_of(written(tmp_path, packed, name)) == CONTENT
    packed = CODECS[codec](CONTENT[:100_000]) + CODECS[codec](CONTENT[100_000:])
    assert content_of(written(tmp_path, packed, f"rows.{codec}")) == CONTENT


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_that_is_cut_off_or_a_text(tmp_path, codec):
    packed = CODECS[codec](CONTENT)
    for content in (packed[:-1], packed[: len(packed) // 2], packed[:12], CONTENT):
        file = written(tmp_path, content, f"rows.csv.{codec}")
        with pytest.raises(ValueError, match=rf"rows\.csv\.{codec} cannot be decompressed"):
            content_of(file)


def test_files_on_other_file_systems(tmp_path, monkeypatch):
    """Beam opens them; it is not to decompress them first."""
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    file = written(tmp_path, CODECS["gz"](CONTENT))

    def opened(path: str, **options: object) -> object:
        assert path == "gs://bucket/rows.csv"
        assert options == {"compression_type": CompressionTypes.UNCOMPRESSED}
        return open(file, "rb", buffering=0)

    monkeypatch.setattr(FileSystems, "open", opened)
    assert content_of("gs://bucket/rows.csv") == CONTENT


@pytest.mark.parametrize("codec", CODECS)
def test_memory_is_that_of_a_few_buffers(tmp_path, codec):
    file = written(tmp_path, CODECS[codec](bytes(2**26)), f"rows.{codec}")
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with open_decompressed(file) as stream:
            size = sum(len(part) for part in iter(lambda: stream.read(2**20), b""))
            assert pa.total_allocated_bytes() - before < 2**23
        assert tracemalloc.get_traced_memory()[1] < 2**24  # xz has a window of 8 MB
    finally:
        tracemalloc.stop()
    assert size == 2**26


def test_every_suffix_is_tried_here():
    assert set(decompress.SUFFIXES) == {f".{codec}" for codec in CODECS} | {".zstd"}
