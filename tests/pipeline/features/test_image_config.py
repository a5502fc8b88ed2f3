"""`init` for folders of images, columns of paths and long texts: `run` accepts what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from pipeline.features.first_config import init_file
from pipeline.preflight.preflight import check_data

IMAGE = {"image": {"height": 64, "width": 64, "channels": 3}}


def write_images(folder: Path, count: int) -> list[str]:
    paths = [f"{'cat' if i % 2 else 'dog'}/{i}.png" for i in range(count)]
    for i, path in enumerate(paths):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), i % 256, np.uint8)).save(folder / path)
    return paths


def written(path: Path, tmp_path: Path, **options: Any) -> dict[str, Any]:
    """The YAML of `init`, which the checks before a run accept."""
    file = tmp_path / "first.yaml"
    init_file(str(path), output=file, check=check_data, **options)
    return yaml.safe_load(file.read_text())


@pytest.mark.parametrize("parts", [("",), ("train", "validation")])
def test_a_folder_of_images(tmp_path, parts):
    for part in parts:
        write_images(tmp_path / "photos" / part, 240)
    config = written(tmp_path / "photos", tmp_path)
    data = {"source": "images", "path": "photos"}
    assert config["data"] == (data if len(parts) > 1 else {**data, "eval_percent": 20})
    (group,) = config["features"]["groups"]
    assert group == {"name": "image", "columns": ["image"], "encode": IMAGE}
    assert config["features"]["label"] == {"column": "label", "kind": "binary", "positive": "dog"}
    assert config["training"]["model"]["kind"] == "conv"
    assert config["training"]["micro_batch_size"] <= 32


def test_a_column_of_paths(tmp_path):
    paths = write_images(tmp_path, 240)
    rows = "".join(f"{path},{i % 7 + i / 1000},{i % 2}\n" for i, path in enumerate(paths))
    (tmp_path / "table.csv").write_text(f"photo,size,target\n{rows}")
    config = written(tmp_path / "table.csv", tmp_path)
    assert config["data"]["files"] == {"image": "photo"}
    groups = {each["name"]: each for each in config["features"]["groups"]}
    assert groups["image"] == {"name": "image", "columns": ["image"], "encode": IMAGE}
    assert len(groups) == 2
    assert config["training"]["model"]["kind"] == "conv"
    (tmp_path / paths[0]).unlink()  # other texts than paths of files are what they were
    assert "files" not in written(tmp_path / "table.csv", tmp_path, force=True)["data"]


@pytest.mark.parametrize("alone", [True, False])
def test_long_texts(tmp_path, alone):
    """Beside other columns, the words of a text are counted."""
    random = np.random.default_rng(0)
    words = np.array([f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)])
    lines = []
    for i in range(2_400):
        text = " ".join(random.choice(words, 14))
        lines.append(f"{text}{'' if alone else f',{random.normal():.3f}'},{i % 2}\n")
    header = "text,target\n" if alone else "text,size,target\n"
    (tmp_path / "texts.csv").write_text(header + "".join(lines))
    config = written(tmp_path / "texts.csv", tmp_path)
    encode = config["features"]["groups"][0]["encode"]
    tokens = {"tokens": {"split": "words", "top_k": 8000, "max_length": 256}}
    assert encode == tokens if alone else "text" in encode
    assert (config["training"]["model"].get("kind") == "transformer") == alone
