"""Opens a file as its decompressed bytes. The first bytes name the compression, else the suffix."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

_BUFFER = 2**16
_HEAD = 512
_TAR = (257, b"ustar")  # place and bytes of the mark in the head of a tar archive

_FIRST_BYTES = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),  # without a file in it
)
_SUFFIXES = {
    ".gz": "gzip",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".lzma": "xz",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
    ".br": "brotli",
    ".zip": "zip",
}
_UNSUPPORTED_FIRST_BYTES = (
    (b"\x1f\x9d", "compress"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"LZIP\x01", "lzip"),
    (b"\x89LZO\x00", "lzo"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"\x02\x21\x4c\x18", "lz4 in its legacy format"),
)
_UNSUPPORTED_SUFFIXES = {
    ".z": "compress",
    ".7z": "7z",
    ".rar": "rar",
    ".lz": "lzip",
    ".lzo": "lzo",
    ".sz": "snappy",
    ".snappy": "snappy",
    ".deflate": "deflate",
    ".tar": "tar",
    ".tgz": "tar",
}

SUFFIXES = tuple(_SUFFIXES)
"""How the name of a compressed file ends, in lower case."""

_DAMAGE = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile),
    *(NotImplementedError, RuntimeError),  # zipfile: a method it lacks, a password
)


class DamagedFile(ValueError):
    """A file that cannot be decompressed; `reason` is what the decompressor says."""

    def __init__(self, file: str, codec: str, reason: object):
        super().__init__(
            f"{file} cannot be decompressed as {codec} ({reason}). It is damaged, not whole or of "
            "another format: write or copy it again."
        )
        self.reason = reason


def content_name(path: str) -> str:
    """Return a path as it would be decompressed: its ending names the format.

    Args:
        path: of a file, which need not be there; its suffix may be in any capitalisation.

    Raises:
        ValueError: the suffix is of a compression that is not supported, or it is a zip that holds
            not exactly one file.
    """
    stem, suffix = os.path.splitext(path)
    if suffix.lower() in _UNSUPPORTED_SUFFIXES:
        raise _unsupported(path, _UNSUPPORTED_SUFFIXES[suffix.lower()])
    if suffix.lower() == ".zip" and os.path.isfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return _only_member(archive, path)
        except _DAMAGE as error:
            raise DamagedFile(path, "zip", error) from None
    return stem if suffix.lower() in _SUFFIXES else path


def open_decompressed(
    file: str, is_plain: Callable[[bytes], bool] = lambda _head: False
) -> BinaryIO:
    """Open a file for reading, decompressed as it is read.

    Args:
        file: a path on any file system that Beam knows.
        is_plain: says of the first bytes whether they are of an uncompressed file, whatever else
            they look like.

    Raises:
        ValueError: the compression is not supported, or it holds not exactly one file.
        DamagedFile: here or from a later read.
    """
    source = open_raw(file)
    try:
        codec = _codec(file, source, is_plain)
        if codec is None:
            return source
        unpacked = io.BufferedReader(_Unpacked(source, codec, file), _BUFFER)
        inner = unpacked.peek(_HEAD)[:_HEAD]
        again = None if is_plain(inner) else _by_first_bytes(inner)
        if again is not None:
            raise ValueError(f"{file} is {again} within {codec}. Decompress it once.")
        if inner[_TAR[0] :].startswith(_TAR[1]):
            raise ValueError(f"{file} is a tar archive. Extract its files and name these.")
        return unpacked
    except BaseException:
        source.close()
        raise


def _codec(file: str, source: io.BufferedReader, is_plain: Callable[[bytes], bool]) -> str | None:
    head = source.peek(_HEAD)[:_HEAD]
    if is_plain(head):
        return None
    codec = _by_first_bytes(head)
    if codec is not None:
        return codec
    suffix = os.path.splitext(file)[1].lower()
    unsupported = _UNSUPPORTED_SUFFIXES.get(suffix) or next(
        (name for start, name in _UNSUPPORTED_FIRST_BYTES if head.startswith(start)), None
    )
    if unsupported:
        raise _unsupported(file, unsupported)
    return _SUFFIXES.get(suffix)


def _unsupported(file: str, codec: str) -> ValueError:
    known = ", ".join(dict.fromkeys(_SUFFIXES.values()))
    return ValueError(
        f"{file}: unsupported compression {codec!r}. Supported are {known} (a zip with one file in "
        "it). Compress the file by one of them, or not at all."
    )


def _by_first_bytes(head: bytes) -> str | None:
    codec = next((name for start, name in _FIRST_BYTES if head.startswith(start)), None)
    if codec == "bzip2" and head[4:10] not in (b"1AY&SY", b"\x17rE8P\x90"):
        return None  # a text that begins with BZh
    return codec


def open_raw(file: str) -> io.BufferedReader:
    """Open a file on any file system that Beam knows, as it is stored."""
    if "://" not in file:
        return io.BufferedReader(open(file, "rb", buffering=0), _BUFFER)
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    opened: BinaryIO = FileSystems.open(file, compression_type=CompressionTypes.UNCOMPRESSED)
    return opened if isinstance(opened, io.BufferedReader) else io.BufferedReader(_Raw(opened))


class _Raw(io.RawIOBase):
    """A source of which only `read` is known; closes it."""

    def __init__(self, source: BinaryIO):
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        found = self._source.read(len(into))
        into[: len(found)] = found
        return len(found)

    def seekable(self) -> bool:
        return self._source.seekable()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        return self._source.tell()

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class _Unpacked(io.RawIOBase):
    """The decompressed bytes of a source, which it closes."""

    def __init__(self, source: io.BufferedReader, codec: str, file: str):
        self._source, self._codec, self._file = source, codec, file
        try:
            self._unpacked = _decompressor(source, codec, file)
        except _DAMAGE as error:
            raise DamagedFile(file, codec, error) from None

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        try:
            found = self._unpacked.read(len(into))
        except _DAMAGE as error:
            raise DamagedFile(self._file, self._codec, error) from None
        into[: len(found)] = found
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._unpacked.close()
            self._source.close()
        super().close()


def _decompressor(source: io.BufferedReader, codec: str, file: str) -> Any:
    if codec == "gzip":
        return gzip.GzipFile(fileobj=source)
    if codec == "bzip2":
        return bz2.BZ2File(source)
    if codec == "xz":
        return lzma.LZMAFile(source)
    if codec == "zip":
        archive = zipfile.ZipFile(source)
        return archive.open(_only_member(archive, file))
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(source, mode="r"), codec)


def _only_member(archive: zipfile.ZipFile, file: str) -> str:
    members = [
        name
        for name in archive.namelist()
        if not name.endswith("/")
        and not name.startswith("__MACOSX/")
        and not os.path.basename(name).startswith(".")  # .DS_Store
    ]
    if "[Content_Types].xml" in members:
        raise ValueError(f"{file} is an Office file, as Excel writes them. Save it as CSV.")
    if len(members) != 1:
        shown = f" ({', '.join(members[:3])}, ...)" if members else ""
        raise ValueError(
            f"{file} is a zip with {len(members)} files in it{shown}. Only a zip with exactly one "
            "is read: extract it, and name the files."
        )
    return members[0]
