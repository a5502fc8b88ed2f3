"""Images as rows: against Pillow's and TensorFlow's own decoders, from each kind of source."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from PIL import Image
from tfx import v1 as tfx
from tfx.types import standard_artifacts

from components import ArrowExampleGen, CsvOptions, Images, Splitting
from components.arrow_example_gen import images
from components.arrow_example_gen.executor import Executor, _SpanProcessor
from components.arrow_example_gen.images import ImageTable, decodable, list_images

STAY = {"JPEG": {}, "PNG": {}, "GIF": {}, "BMP": {}}
BECOME_PNG = {"WEBP": {"lossless": True}, "TIFF": {}}


def pixels(seed: int, height: int = 9, width: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def encoded(array: np.ndarray, kind: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    written = io.BytesIO()
    Image.fromarray(array).convert(mode).save(written, kind, **options)
    return written.getvalue()


def decoded(data: bytes) -> np.ndarray:
    return tf.io.decode_image(data, channels=3, expand_animations=False).numpy()


@pytest.fixture
def photos(tmp_path):
    """Two classes of ten pictures in all formats, one of them in both, and a folder below one."""
    for i in range(20):
        kind = [*STAY, *BECOME_PNG][i % 6]
        folder = tmp_path / "photos" / ("dog" if i % 2 else "cat/old" if i == 4 else "cat")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:02}.{kind.lower()}").write_bytes(encoded(pixels(i), kind))
    for folder in ("cat", "dog"):
        for i in range(9):
            (tmp_path / "photos" / folder / f"same{i}.png").write_bytes(encoded(pixels(99)))
    (tmp_path / "photos" / "cat" / ".hidden").write_bytes(b"x")
    return tmp_path / "photos"


def write(node: ArrowExampleGen, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Runs the node's executor: split -> rows, each column with its first value."""
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    executor = Executor(Executor.Context(["--runner=FnApiRunner"], tmp_dir=str(folder / "tmp")))
    executor.Do({}, {"examples": [examples]}, dict(node.exec_properties))
    return {
        split.name.removeprefix("Split-"): [
            {name: (values or [None])[0] for name, values in row.items()}
            for file in split.iterdir()
            for row in pq.read_table(file).to_pylist()
        ]
        for split in sorted(folder.glob("Split-*"))
    }


def node_of(base: Path, pattern: str, **options: Any) -> ArrowExampleGen:
    proto = tfx.proto
    split = proto.SplitConfig.Split
    return ArrowExampleGen(
        input_base=str(base),
        input_config=proto.Input(splits=[proto.Input.Split(name="all", pattern=pattern)]),
        output_config=proto.Output(
            split_config=proto.SplitConfig(
                splits=[
                    split(name=name, hash_buckets=n) for name, n in {"train": 2, "eval": 1}.items()
                ]
            )
        ),
        **options,
    )


def test_a_folder_of_classes_is_a_table(photos, tmp_path):
    """Reference: the bytes of the files; equal pictures, of both classes, are in one split."""
    splitting = Splitting(by="group", column="image")
    node = node_of(tmp_path, "photos", images=Images(folder=True), splitting=splitting)
    splits = write(node, tmp_path / "examples")
    rows = [row for rows in splits.values() for row in rows]
    assert len(rows) == 38
    assert all(splits.values())
    assert {row["path"].decode() for row in rows} == {
        file.path for file in list_images(str(photos))
    }
    for row in rows:
        file = photos / row["path"].decode()
        assert row["label"] == row["path"].partition(b"/")[0]
        stays = file.suffix[1:].upper() in STAY
        assert (row["image"] == file.read_bytes()) == stays
        if file.suffix != ".jpeg":
            expected = np.asarray(Image.open(file).convert("RGB"))
            np.testing.assert_array_equal(decoded(row["image"]), expected)
    homes = {n for n, rows in splits.items() for row in rows if b"same" in row["path"]}
    assert len(homes) == 1
    (file,) = (tmp_path / "examples" / "Split-train").iterdir()
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "UNCOMPRESSED"


def test_an_engine_spreads_the_files_and_blocks_are_bounded(photos, monkeypatch):
    table = ImageTable((str(photos),))
    assert len(table.parts(str(photos))) == 38  # each file
    monkeypatch.setattr(images, "_FEW_PARTS", 1)
    monkeypatch.setattr(images, "_PART_FILES", 4)
    parts = table.parts(str(photos))
    assert len(parts) == 10
    classes = [{path.partition("/")[0] for path in part[1].split("\0")} for part in parts]
    assert sum(len(each) == 2 for each in classes) >= 5, "the order does not mix the classes"
    monkeypatch.setattr(images, "_BLOCK_BYTES", 1)
    blocks = [len(block.places) for part in parts for block in table.read_blocks(part)]
    assert max(blocks) == 1
    assert sum(blocks) == 38
    monkeypatch.setattr(images, "open_raw", None)  # paths and labels need no bytes
    assert sum(len(block.places) for block in table.all_blocks(["label", "path"])) == 38


DAMAGED = {
    "text.png": (b"hello", "not an image"),
    "empty.jpg": (b"", "not an image"),
    "cut.png": (encoded(pixels(0))[:-5], "cut off"),
    "flipped.png": (encoded(pixels(0)).replace(b"IDATx", b"IDATy"), "wrong checksum of IDAT"),
    "cut.jpg": (encoded(pixels(0), "JPEG")[:-60], "cut off"),
    "marker.jpg": (
        encoded(pixels(0), "JPEG").replace(b"\xff\xdb", b"\x00\xdb"),
        "without a marker",
    ),
    "cut.gif": (encoded(pixels(0), "GIF")[:-60], "truncated"),
    "cut.webp": (encoded(pixels(0), "WEBP")[:-60], "not an image"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_image_is_an_error_with_its_path(tmp_path, name):
    data, message = DAMAGED[name]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"a/{name}: .*{message}.*on_damage: skip"):
        list(ImageTable((str(tmp_path),)).all_blocks())


def test_damaged_images_are_left_out_and_counted(photos, tmp_path):
    for name, (data, _) in DAMAGED.items():
        (photos / "cat" / name).write_bytes(data)
    node = node_of(tmp_path, "photos", images=Images(folder=True, on_damage="skip"))
    splits = write(node, tmp_path / "examples")
    assert sum(map(len, splits.values())) == 38
    skipped = json.loads((tmp_path / "examples" / "skipped.json").read_text())
    assert skipped["number"] == len(DAMAGED)
    assert [line.partition(": ")[0] for line in skipped["first"]] == sorted(
        str(photos / "cat" / name) for name in DAMAGED
    )


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA"])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "WEBP", "TIFF"])
def test_every_mode_keeps_its_pixels(mode, kind):
    """Reference: Pillow's own conversion to RGB. TensorFlow takes palettes of BMP as gray."""
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(pixels(3), kind, mode, **options)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(decoded(decodable(data)), expected)


def test_the_first_frame_and_jpegs_of_print():
    frames = {"save_all": True, "append_images": [Image.fromarray(255 - pixels(3))]}
    for kind in ("GIF", "WEBP"):
        data = encoded(pixels(3), kind, **frames)
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        np.testing.assert_array_equal(decoded(decodable(data)), expected)
    for mode, progressive in (("CMYK", False), ("RGB", True), ("L", False)):
        data = encoded(pixels(3), "JPEG", mode, progressive=progressive)
        assert decodable(data) == data
        assert decoded(data).shape == (9, 7, 3)


def write_table(folder: Path, kind: str) -> dict[str, Any]:
    """Writes the same 12 rows with an image in a format; returns the arguments of its node."""
    datas = [
        encoded(pixels(i), ["PNG", "WEBP"][i % 2], **[{}, {"lossless": True}][i % 2])
        for i in range(12)
    ]
    (folder / "p").mkdir()
    paths = [f"p/{i}" for i in range(12)]
    for path, data in zip(paths, datas, strict=True):
        (folder / path).write_bytes(data)
    if kind == "csv":
        (folder / "t.csv").write_text(
            "id,photo\n" + "".join(f"{i},{p}\n" for i, p in enumerate(paths))
        )
        return {"csv": CsvOptions(), "images": Images(files={"image": "photo"})}
    if kind == "paths":
        table = pa.table({"id": range(12), "photo": paths})
        pq.write_table(table, folder / "t.paths")
        return {"images": Images(files={"image": "photo"})}
    if kind == "structs":
        structs = [{"bytes": data, "path": path} for data, path in zip(datas, paths, strict=True)]
        pq.write_table(pa.table({"id": range(12), "image": structs}), folder / "t.structs")
        return {"images": Images(columns=("image",))}
    with tf.io.TFRecordWriter(str(folder / "t.tfrecord")) as writer:
        for i, data in enumerate(datas):
            row = tf.train.Example()
            row.features.feature["id"].int64_list.value.append(i)
            row.features.feature["image/encoded"].bytes_list.value.append(data)
            writer.write(row.SerializeToString())
    return {"tfrecord": True, "images": Images(columns=("image/encoded",))}


@pytest.mark.parametrize("kind", ["csv", "paths", "structs", "tfrecord"])
def test_a_table_with_images(tmp_path, kind, monkeypatch):
    """Of paths, of bytes as Hugging Face writes them, and as TFDS and object detection do."""
    monkeypatch.setattr(images, "_BLOCK_BYTES", 300)
    arguments = write_table(tmp_path, kind)
    name = "image/encoded" if kind == "tfrecord" else "image"
    arguments["splitting"] = Splitting(by="group", column=name)
    splits = write(node_of(tmp_path, f"t.{kind}", **arguments), tmp_path / "examples")
    rows = sorted((row for rows in splits.values() for row in rows), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(12))
    assert all(splits.values())
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(decoded(row[name]), pixels(i))
        assert kind == "tfrecord" or row.get("photo") in (None, f"p/{i}".encode())


@pytest.mark.parametrize("kind", ["paths", "structs", "tfrecord"])
def test_a_wrong_image_of_a_table_is_an_error_with_its_row(tmp_path, kind):
    arguments = write_table(tmp_path, kind)
    file = tmp_path / f"t.{kind}"
    if kind == "tfrecord":
        with tf.io.TFRecordWriter(str(file)) as writer:
            row = tf.train.Example()
            row.features.feature["image/encoded"].bytes_list.value.append(b"no")
            writer.write(row.SerializeToString())
        message = "row 1, column 'image/encoded': not an image"
    elif kind == "structs":
        bad = [{"bytes": b"no", "path": "x"}]
        pq.write_table(pa.table({"image": bad}), file)
        message = "row 1, column 'image': not an image"
    else:
        (tmp_path / "p" / "7").unlink()
        message = "row 8, column 'photo': .*p/7: No such file"
    with pytest.raises(Exception, match=message):
        write(node_of(tmp_path, file.name, **arguments), tmp_path / "examples")
    skip = Images(**{**arguments.pop("images").model_dump(), "on_damage": "skip"})
    splits = write(node_of(tmp_path, file.name, images=skip, **arguments), tmp_path / "examples")
    assert sum(map(len, splits.values())) == (11 if kind == "paths" else 0)


def test_a_changed_file_is_not_taken_from_the_cache(photos, tmp_path):
    """TFX's own fingerprint of a folder does not see the files below it."""
    splits = tfx.proto.Input(splits=[tfx.proto.Input.Split(name="all", pattern="photos")]).splits

    def fingerprint() -> str:
        return _SpanProcessor(str(tmp_path), splits).get_input_fingerprint(0, None)

    before = fingerprint()
    assert fingerprint() == before
    (photos / "cat" / "new.png").write_bytes(encoded(pixels(5)))
    assert fingerprint() != before
