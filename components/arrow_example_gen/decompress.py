"""Opens a file as its decompressed bytes. The first bytes name the compression, else the suffix."""

from __future__ import annotations

import io
import lzma
import os
import re
from typing import Any, BinaryIO

_BUFFER = 2**16
_FIRST_BYTES = re.compile(
    rb"(?P<gzip>\x1f\x8b\x08)|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))|(?P<xz>\xfd7zXZ\x00)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd)|(?P<lz4>\x04\x22\x4d\x18)"
)
_SUFFIXES = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
}

SUFFIXES = tuple(_SUFFIXES)
"""How the name of a compressed file ends, in lower case."""


class DamagedFile(ValueError):
    """A file that cannot be decompressed; `reason` is what the decompressor says."""

    def __init__(self, file: str, codec: str, reason: object):
        super().__init__(
            f"{file} cannot be decompressed as {codec} ({reason}). It is damaged, not whole or of "
            "another format: write or copy it again."
        )
        self.reason = reason


def content_name(path: str) -> str:
    """Return a path as it would be decompressed: its ending names the format."""
    stem, suffix = os.path.splitext(path)
    return stem if suffix.lower() in _SUFFIXES else path


def open_decompressed(file: str) -> BinaryIO:
    """Open a file, on any file system that Beam knows, decompressed as it is read.

    Raises:
        DamagedFile: here or from a later read.
    """
    source = open_raw(file)
    known = _FIRST_BYTES.match(source.peek(16)[:16])
    codec = known.lastgroup if known else _SUFFIXES.get(os.path.splitext(file)[1].lower())
    return io.BufferedReader(_Unpacked(source, codec, file), _BUFFER) if codec else source


def open_raw(file: str) -> io.BufferedReader:
    """Open a file on any file system that Beam knows, as it is stored."""
    if "://" not in file:
        return io.BufferedReader(open(file, "rb", buffering=0), _BUFFER)
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    opened: Any = FileSystems.open(file, compression_type=CompressionTypes.UNCOMPRESSED)
    return opened if isinstance(opened, io.BufferedReader) else io.BufferedReader(opened)


class _Unpacked(io.RawIOBase):
    """The decompressed bytes of a source, which it closes."""

    def __init__(self, source: io.BufferedReader, codec: str, file: str):
        import pyarrow as pa

        self._source, self._codec, self._file = source, codec, file
        self._unpacked: Any = (
            lzma.LZMAFile(source)  # noqa: SIM115  closed with this
            if codec == "xz"
            else pa.CompressedInputStream(pa.PythonFile(source, mode="r"), codec)
        )

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._unpacked.read(len(into))
        except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
            raise DamagedFile(self._file, self._codec, error) from None
        into[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._unpacked.close()
            self._source.close()
        super().close()
