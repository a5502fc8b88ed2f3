"""Folders of images and columns of paths, from the YAML to the rows of `run` and `predict`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from components import CsvOptions
from pipeline.common.errors import ConfigError
from pipeline.config.config_file import config_of_text
from pipeline.data.data_sources import example_gen, files, source_of, split_column
from pipeline.data.peek import peek
from pipeline.preflight.preflight import check_data
from pipeline.run.input_rows import add_images, open_rows


def png(seed: int) -> bytes:
    array = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), np.uint8)
    written = io.BytesIO()
    Image.fromarray(array).save(written, "PNG")
    return written.getvalue()


@pytest.fixture
def photos(tmp_path):
    for i in range(30):
        for part in ("train", "val"):
            folder = tmp_path / "photos" / part / f"class{i % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i}.png").write_bytes(png(i))
    rows = "".join(f"{i},train/class{i % 3}/{i}.png,{i % 2}\n" for i in range(30))
    (tmp_path / "photos" / "table.csv").write_text("id,photo,y\n" + rows)
    return tmp_path / "photos"


def config_of(folder: Path, data: str, label: str = "label: {column: label, kind: multiclass}"):
    return config_of_text(
        f"name: p\ndata: {{{data}}}\nfeatures:\n  groups: "
        f"[{{name: g, columns: [PATH], encode: {{hash: {{buckets: 4}}}}}}]\n  {label}\n"
        "training: {global_batch_size: 8}\noutput: {folder: out}\n".replace(
            "PATH", "photo" if "csv" in data else "path"
        ),
        folder,
    )


def test_folders_named_train_and_val_are_the_splits(photos):
    config = config_of(photos.parent, "source: images, path: photos")
    assert config.data.path == str(photos / "train")
    assert config.data.eval_path == str(photos / "val")
    assert check_data(config) is not None
    node = example_gen(config.data, config.features)
    patterns = json.loads(node.exec_properties["input_config"])["splits"]
    assert [each["pattern"] for each in patterns] == ["train", "val"]
    assert config.data.shares == {"train": 100}


def test_a_folder_of_classes_is_checked_without_its_images(photos):
    config = config_of(photos.parent, "source: images, path: photos/train")
    assert source_of(str(photos / "train")) == "images"
    assert split_column(config.data, config.features) == "image"
    for file in photos.glob("train/*/*"):
        file.write_bytes(b"")  # ExampleGen says so, when it reads them
    seen = check_data(config)
    assert seen is not None
    assert seen.sample is not None
    assert (seen.rows, dict(seen.columns)) == (
        30,
        dict.fromkeys(["image", "label", "path"], "string"),
    )
    assert sorted(set(seen.sample.texts("label"))) == [b"class0", b"class1", b"class2"]


def test_one_class_is_an_error(photos):
    config = config_of(photos.parent, "source: images, path: photos/train/class0")
    with pytest.raises(ConfigError, match=r"'label' .*is missing in 10 of 10 rows"):
        check_data(config)


LABEL_Y = "label: {column: y, kind: binary}"
TABLE = "path: photos/table.csv, csv: {delimiter: ','}"


def test_a_column_of_paths_adds_a_column(photos):
    config = config_of(photos.parent, f"{TABLE}, files: {{image: photo}}", LABEL_Y)
    assert config.image_columns == ("image",)
    seen = check_data(config)
    assert seen is not None
    assert seen.columns["image"] == "string"


REFUSED = {
    "files: {image: foto}": "'foto' is no column of texts; did you mean 'photo'",
    "files: {id: photo}": "the data have a column 'id'",
    "files: {image: y}": "'y' is no column of texts",
}


@pytest.mark.parametrize("files", REFUSED)
def test_wrong_columns_of_paths(photos, files):
    with pytest.raises(ConfigError, match=REFUSED[files]):
        peek(config_of(photos.parent, f"{TABLE}, {files}", LABEL_Y).data)


def test_a_path_without_a_file_is_an_error_before_the_run(photos):
    (photos / "train" / "class1" / "7.png").unlink()
    with pytest.raises(ConfigError, match=r"'photo' names train/class1/7\.png, and .* is no file"):
        peek(config_of(photos.parent, f"{TABLE}, files: {{image: photo}}", LABEL_Y).data)


def test_no_folder_of_images(photos):
    (photos / "empty").mkdir()
    for path, message in (("empty", "without files"), ("table.csv", "not a folder")):
        with pytest.raises(ConfigError, match=message):
            files(str(photos / path), "data.path", source="images")


def predicted_rows(photos: Path, path: str, kind: Any, tmp_path: Path, **options: Any):
    """The rows of `predict` for a model that was trained on `image`, read from `photo`."""
    (tmp_path / "model" / "assets.extra").mkdir(parents=True)
    reading = {"version": 1, "source": "csv", "csv": {}, "images": ["image"]}
    reading["files"] = {"image": "photo"}
    (tmp_path / "model" / "assets.extra" / "reading.json").write_text(json.dumps(reading))
    found = files(str(photos / path), "--data", source=kind)
    rows = open_rows(found, path, kind, CsvOptions(), **options)
    add_images(rows, found, kind, tmp_path / "model", **options)
    return rows


@pytest.mark.parametrize(("path", "kind"), [("train", "images"), ("table.csv", "csv")])
def test_predict_reads_images_with_their_paths(photos, tmp_path, path, kind):
    rows = predicted_rows(photos, path, kind, tmp_path, skip=True)
    (photos / "train" / "class1" / "7.png").write_bytes(b"no")
    key = "path" if kind == "images" else "photo"
    found = [row for batch in rows.batches for row in batch.to_pylist()]
    assert sorted(int(Path(row[key]).stem) for row in found) == [i for i in range(30) if i != 7]
    assert [row[key] for row in found] == sorted(row[key] for row in found) or kind == "csv"
    assert all(row["image"] == png(int(Path(row[key]).stem)) for row in found)
    assert len(rows.unreadable) == 1
    assert "class1/7.png: not an image" in rows.unreadable[0]


def test_predict_names_a_damaged_image(photos, tmp_path):
    (photos / "train" / "class1" / "7.png").write_bytes(b"no")
    rows = predicted_rows(photos, "train", "images", tmp_path, skip=False)
    with pytest.raises(ConfigError, match=r"class1/7\.png: not an image .* --on-error skip"):
        list(rows.batches)
