"""Folders of images as a table, and the encoded images of a table's columns.

A folder has a folder per class, as `keras.utils.image_dataset_from_directory` reads it:

    photos/cat/1.png, photos/cat/old/2.jpg, photos/dog/3.webp

Each file is a row with the columns `image` (its bytes), `label` (the name of the class's folder;
none for a file outside of these) and `path` (below `photos`). Names that begin with `.` or `_` are
left out.

JPEG, PNG, GIF and uncompressed 24-bit BMP stay as they are. What Pillow reads and
`tf.io.decode_image` does not (WebP, TIFF, other BMPs) becomes a PNG with the same pixels. JPEG and
PNG are checked by their structure, without being decoded: Transform decodes them anyway.
"""

from __future__ import annotations

import io
import os
import random
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from components.arrow_example_gen.columns import Agreed, Block, Kind, Part, Table, as_lists
from components.arrow_example_gen.decompress import open_raw

IMAGE, LABEL, PATH = "image", "label", "path"
KINDS: Mapping[str, Kind | None] = {IMAGE: "string", LABEL: "string", PATH: "string"}
"""The columns of a folder of images."""

SKIPPED, SHOWN_SKIPPED = "skipped.json", 10
"""File in an Examples artifact: the number of images that were left out, and the first errors."""

_FEW_PARTS, _PART_FILES = 256, 128
"""An element of Beam costs as much as reading some small files: only few files have one each."""
_SEPARATOR = "\0"  # in no path
_BLOCK_BYTES = 2**22
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_MODES = ("1", "L", "LA", "P", "I", "I;16", "RGB", "RGBA")  # that Pillow writes as they are
_CHUNK = struct.Struct(">I4s")
_FRAMES = (0xC0, 0xC1, 0xC2)  # of JPEG: baseline, extended and progressive
_OTHER_FRAMES = {0xC3, *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)}
_END_OF_JPEG = b"\xff\xd9"
_FIX = "Write the file again, or remove it; to leave such rows out, set data.on_damage: skip."


class Images(BaseModel):
    """Where the encoded images of a table are.

    Attributes:
        folder: the input is a folder of images.
        files: column to add, with the bytes of files -> the column with their paths, which are
            relative to the file of the table.
        columns: columns whose values are encoded images.
        on_damage: whether an image that cannot be read is an error, or its row is left out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: bool = False
    files: Mapping[str, str] = {}
    columns: tuple[str, ...] = ()
    on_damage: Literal["fail", "skip"] = "fail"

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of encoded images."""
        return (*([IMAGE] if self.folder else []), *self.files, *self.columns)


class ImageFile(NamedTuple):
    """A file below a folder: its path from there, its bytes, and when it was changed."""

    path: str
    size: int
    changed: float


def list_images(folder: str) -> list[ImageFile]:
    """Return the files in a folder and below it, sorted by path."""
    folder = folder.rstrip("/")
    if "://" in folder:
        from apache_beam.io.filesystems import FileSystems

        matches: Any = FileSystems.match([f"{folder}/**"])
        found = [
            ImageFile(each.path, each.size_in_bytes, each.last_updated_in_seconds)
            for match in matches
            for each in match.metadata_list
        ]
    else:
        paths = [
            f"{place}/{name}"
            for place, _, names in os.walk(folder, followlinks=True)
            for name in names
        ]
        found = [ImageFile(path, (s := os.stat(path)).st_size, s.st_mtime) for path in paths]
    files = [each._replace(path=each.path[len(folder) + 1 :]) for each in found]
    return sorted(each for each in files if not re.search("(^|/)[._]", each.path))


@dataclass(frozen=True)
class ImageTable(Table):
    """Folders of images; `files` are the folders."""

    def parts(self, file: str, *, whole: bool = False) -> list[Part]:
        """Return some files each, with `whole` sorted, else in an order that mixes the classes."""
        paths = [each.path for each in list_images(file)]
        if not whole:
            random.Random(0).shuffle(paths)
        size = min(-(-len(paths) // _FEW_PARTS), _PART_FILES) or 1
        starts = range(0, len(paths), size)
        # One text: Beam measures each object of a side input.
        return [(file, _SEPARATOR.join(paths[start : start + size]), 0) for start in starts]

    def examine(self, part: Part) -> tuple[int, None]:
        """Return the number of files of a part."""
        return part[1].count(_SEPARATOR) + 1, None

    def agree(self, examined: Iterable[tuple[Part, tuple[int, Any]]]) -> Agreed:
        """Return the columns, which are the same in all folders."""
        return KINDS, [part for part, _ in examined], None

    def read_blocks(
        self,
        part: Part,
        columns: Sequence[str] | None = None,
        *,
        unreadable: list[str] | None = None,
    ) -> Iterator[Block]:
        """Yield the files of a part, some MB at a time; without `image`, they are not read.

        Raises:
            ValueError: a file is no image, or is damaged: names it.
        """
        folder, paths = part[0], part[1].split(_SEPARATOR)
        labels = [path.partition("/")[0] if "/" in path else None for path in paths]
        texts = {LABEL: pa.array(labels, pa.string()), PATH: pa.array(paths, pa.string())}
        names = list(KINDS if columns is None else columns)
        full = [f"{folder}/{path}" for path in paths]
        pieces: Iterable[tuple[np.ndarray, Mapping[str, pa.Array]]] = [(np.arange(len(paths)), {})]
        if IMAGE in names:
            pieces = load_images({IMAGE: full}, lambda row, _: full[row], unreadable)
        for rows, images in pieces:
            known = {**{name: text.take(pa.array(rows)) for name, text in texts.items()}, **images}
            cells = pa.RecordBatch.from_arrays([known[name] for name in names], names)
            yield Block(part, np.zeros(len(rows), np.int64), cells)  # equal rows differ in `path`


def load_images(
    columns: Mapping[str, Sequence[str | bytes | None]],
    place: Callable[[int, str], str],
    unreadable: list[str] | None = None,
) -> Iterator[tuple[np.ndarray, dict[str, pa.Array]]]:
    """Yield rows by number, and their images as bytes that `tf.io.decode_image` reads.

    Args:
        columns: name -> path or bytes of the image of each row; None, for no image, stays.
        place: row and column -> what messages name.
        unreadable: gets a line for each row that cannot be read, which is left out; None: such a
            row is an error.

    Raises:
        ValueError: an image cannot be read: names its place.
    """
    rows: list[int] = []
    held: dict[str, list[bytes | None]] = {name: [] for name in columns}
    size = 0
    for row, sources in enumerate(zip(*columns.values(), strict=True)):
        images: list[bytes | None] = []
        for name, source in zip(columns, sources, strict=True):
            try:
                images.append(None if source is None else decodable(_bytes_of(source)))
            except (ValueError, OSError) as error:
                reason = f"{place(row, name)}: {getattr(error, 'strerror', None) or error}"
                if unreadable is None:
                    raise ValueError(f"{reason}. {_FIX}") from None
                unreadable.append(reason)
                break
        else:
            rows.append(row)
            for name, image in zip(columns, images, strict=True):
                held[name].append(image)
                size += len(image or b"")
        if size >= _BLOCK_BYTES:
            yield _block(rows, held)
            rows, size = [], 0
            held = {name: [] for name in columns}
    yield _block(rows, held)


def _block(
    rows: list[int], held: Mapping[str, list[bytes | None]]
) -> tuple[np.ndarray, dict[str, pa.Array]]:
    arrays = {name: pa.array(images, pa.large_binary()) for name, images in held.items()}
    return np.array(rows, np.int64), arrays


def _bytes_of(source: str | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    with open_raw(source) as stream:
        return stream.read()


def images_of(
    file: str,
    places: np.ndarray,
    batch: pa.RecordBatch,
    images: Images,
    unreadable: list[str] | None = None,
) -> Iterator[tuple[np.ndarray, dict[str, pa.Array]]]:
    """Yield rows of a batch by number, with the columns of `images` as `load_images` does.

    Args:
        file: that the rows are from.
        places: of the rows in it, see `Rows`.
        batch: with the columns of paths and of encoded images, one value or a list in each row.
        images: which they are.
        unreadable: see `load_images`.
    """

    def first_values(name: str) -> list[bytes | None]:
        lists = as_lists(batch[batch.schema.get_field_index(name)], "string")
        return [values[0] if values else None for values in lists.to_pylist()]

    folder = os.path.dirname(file)
    columns: dict[str, list[Any]] = {name: first_values(name) for name in images.columns}
    for name, column in images.files.items():
        paths = [None if each is None else each.decode() for each in first_values(column)]
        columns[name] = [
            path if path is None or "://" in path else os.path.join(folder, path) for path in paths
        ]

    def place(row: int, name: str) -> str:
        group, number = divmod(int(places[row]), 1 << 32)
        where = f"{file}, {f'row group {group}, ' if group else ''}row {number + 1}"
        if name in images.files:
            return f"{where}, column {images.files[name]!r}: {columns[name][row]}"
        return f"{where}, column {name!r}"

    yield from load_images(columns, place, unreadable)


def decodable(data: bytes) -> bytes:
    """Return an image as bytes that `tf.io.decode_image` reads, with the same pixels.

    Raises:
        ValueError: it is not whole, damaged or no image; the message continues "photos/1.png: ".
    """
    try:
        if data.startswith(_PNG):
            _check_png(data)
            return data
        if data.startswith(b"\xff\xd8\xff") and _is_plain_jpeg(data):
            return data
    except (struct.error, IndexError):
        raise ValueError("the image is cut off") from None
    return _decoded_by_pillow(data)


def _check_png(data: bytes) -> None:
    view, place, kind = memoryview(data), len(_PNG), b""
    while kind != b"IEND":
        length, kind = _CHUNK.unpack_from(data, place)
        end = place + _CHUNK.size + length
        checksum = int.from_bytes(data[end : end + 4], "big")
        if end + 4 > len(data):
            raise ValueError("the image is cut off")
        if kind[:1].isupper() and zlib.crc32(view[place + 4 : end]) != checksum:
            raise ValueError(f"the image is damaged: wrong checksum of {kind.decode('latin-1')}")
        place = end + 4


def _is_plain_jpeg(data: bytes) -> bool:
    """Return whether a whole JPEG has samples of 8 bits and a usual coding."""
    place, is_plain = 2, False
    while True:
        if data[place] != 0xFF:
            raise ValueError("the image is damaged: a JPEG without a marker where one belongs")
        marker = data[place + 1]
        if marker == 0xFF:  # fills space
            place += 1
            continue
        if marker in _FRAMES or marker in _OTHER_FRAMES:
            is_plain = marker in _FRAMES and data[place + 4] == 8
        if marker == 0xDA:  # the samples follow, in which no marker of the end can occur
            break
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    if data.rfind(_END_OF_JPEG) < place:
        raise ValueError("the image is cut off")
    return is_plain


def _decoded_by_pillow(data: bytes) -> bytes:
    """Return the bytes of a GIF or a simple BMP that Pillow decodes, or its pixels as a PNG."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            is_simple = image.format == "BMP" and struct.unpack_from("<HI", data, 28) == (24, 0)
            if image.format == "GIF" or is_simple:
                return data
            plain = image if image.mode in _PNG_MODES else image.convert("RGB")
            written = io.BytesIO()
            plain.save(written, "PNG")
            return written.getvalue()
    except Exception as error:  # Pillow's readers raise errors of many types
        reason = "" if "cannot identify" in str(error) else f" ({error})"
        raise ValueError(f"not an image that can be read{reason}") from None
