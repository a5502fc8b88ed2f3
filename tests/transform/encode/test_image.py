"""Pictures as pixels: decoded and resized as Pillow does, statistics against float64 NumPy."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
Image = pytest.importorskip("PIL.Image")

from components.transform.image_statistics import write_image_statistics  # noqa: E402
from shared_core.feature_layout import ASSET, ASSETS, FeatureLayout, ImageFeature  # noqa: E402
from shared_core.images import decode_image, read_images  # noqa: E402
from transform import column_chains  # noqa: E402

ROWS = 23
ODD = "größe/[1] % *"


def draw(height: int, width: int, mode: str = "RGB") -> Any:
    """A smooth picture with noise, so that resizing averages something; the same in each order."""
    rng = np.random.default_rng([height, width])
    channels = len(mode) if mode in ("RGB", "RGBA") else 1
    coarse = rng.integers(0, 256, [4, 4, channels]).astype(np.uint8)
    rough = Image.fromarray(coarse.squeeze(), {1: "L", 3: "RGB", 4: "RGBA"}[channels])
    smooth = np.asarray(rough.resize((width, height), Image.BICUBIC)).astype(int)
    noisy = np.clip(smooth + rng.integers(-9, 10, smooth.shape), 0, 255).astype(np.uint8)
    return Image.fromarray(noisy).convert(mode)


def encode(picture: Any, form: str = "PNG") -> bytes:
    stream = io.BytesIO()
    options = {"quality": 95, "subsampling": 0} if form == "JPEG" else {}
    picture.save(stream, form, **options)
    return stream.getvalue()


PICTURES = [draw(*size) for size in np.random.default_rng(3).integers(5, 40, [ROWS, 2]).tolist()]
FILES = [encode(each) for each in PICTURES]
GROUPS: dict[str, dict[str, Any]] = {
    "colour": {"height": 12, "width": 9},
    "grey": {"height": 8, "width": 8, "channels": 1, "resize": "pad"},
    "kept": {"height": 7, "width": 11, "resize": "stretch", "store": "encoded"},
    "flat": {"height": 4, "width": 4},
}
NAMES = {"colour": ODD, "grey": "grey", "kept": "kept"}  # of the groups of `FILES`


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    groups = [
        {"name": name, "columns": [NAMES.get(name, name)], "encode": {"image": options}}
        for name, options in GROUPS.items()
    ]
    words = {"name": "words", "columns": ["word"], "encode": {"hash": {"buckets": 5}}}
    columns: dict[str, list[Any]] = {NAMES[name]: FILES for name in NAMES}
    columns["word"] = [str(i) for i in range(ROWS)]
    columns["flat"] = [encode(Image.new("RGB", (4, 4), (255, 0, 7)))] * ROWS
    return run_transform({"groups": [*groups, words]}, columns, batch_size=5, dense=["grey"])


def test_pixels_and_statistics(result: Any) -> None:
    """Exact against float64 NumPy, 1e-9 of the value, over batches of 5 pictures."""
    images = {image.group: image for image in result.layout.images}
    assert list(images) == list(GROUPS)
    pixels = read_images(result.written, images.values())
    flat = images.pop("flat")
    assert (flat.mean, flat.variance) == ((255.0, 0.0, 7.0), (0.0, 0.0, 0.0))
    for image in images.values():
        found = pixels[image.name].numpy()
        assert found.shape == (ROWS, *image.shape)
        decoded = tf.stack([decode_image(file, image) for file in FILES]).numpy()
        np.testing.assert_array_equal(found, decoded)
        wide = found.astype(np.float64)
        np.testing.assert_allclose(image.mean, wide.mean(axis=(0, 1, 2)), rtol=1e-9)
        np.testing.assert_allclose(image.variance, wide.var(axis=(0, 1, 2)), rtol=1e-9)
    assert result.written["kept"].tolist() == FILES
    assert [column.name for column in result.layout.columns] == ["word"]
    result.check_serving(alone=[0])
    chains = {chain.column: chain.steps[-1] for chain in column_chains(result.uri)}
    assert chains["grey"].numbers["mean"] == list(images["grey"].mean)


def test_statistics_need_all_analyzed_rows(result: Any, tmp_path: Path) -> None:
    for folders in ([], [str(Path(result.uri, "transform_fn")), str(tmp_path / "Split-train")]):
        with pytest.raises(ValueError, match="has to write all splits that it analyzes"):
            write_image_statistics(result.uri, folders)
    (tmp_path / ASSETS).mkdir(parents=True)
    shutil.copy(Path(result.uri, ASSETS, ASSET), tmp_path / ASSETS)
    with pytest.raises(ValueError, match="does not exist: for pictures"):
        FeatureLayout.from_transform_graph(str(tmp_path))


def test_a_row_without_a_picture_is_refused(run_transform: Any, result: Any) -> None:
    """By the analysis, and by the graph that it made."""
    encoder = {"image": {"height": 4, "width": 4}}
    spec = {"groups": [{"name": "g", "columns": ["photo"], "encode": encoder}]}
    with pytest.raises(Exception, match=r"column photo .* has no picture"):
        run_transform(spec, {"photo": [FILES[0], None]})
    raw = result.raw()
    raw["kept"] = tf.sparse.from_dense([[FILES[0]]] * (ROWS - 1) + [[b"no picture"]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"column kept .* has no picture"):
        result.output.transform_raw_features(raw)


def resized(picture: Any, resize: str, height: int, width: int) -> np.ndarray:
    """What Pillow makes of a picture, by its antialiased bilinear filter."""
    if resize == "stretch":
        return np.asarray(picture.resize((width, height), Image.BILINEAR))
    across, down = width / picture.width, height / picture.height
    scale = (max if resize == "crop" else min)(across, down)
    size = [round(picture.width * scale), round(picture.height * scale)]
    inner = picture.resize(size, Image.BILINEAR)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return np.asarray(inner.crop((left, top, left + width, top + height)))  # black outside


@pytest.mark.parametrize("resize", ["crop", "pad", "stretch"])
def test_resizing_is_that_of_pillow(resize: str) -> None:
    """Within 1 of 255: Pillow rounds after each axis."""
    image = ImageFeature(
        name="x", source="x", group="g", height=16, width=16, channels=3, resize=resize
    )
    for size in ((64, 32), (32, 64), (8, 16), (16, 16), (48, 48)):
        picture = draw(*size)
        found = decode_image(encode(picture), image).numpy().astype(int)
        assert np.abs(found - resized(picture, resize, 16, 16)).max() <= 1, size


@pytest.mark.parametrize(
    ("form", "modes"),  # transparent pixels of a GIF are black here
    [
        ("PNG", ["RGB", "L", "RGBA", "P"]),
        ("JPEG", ["RGB", "L"]),
        ("BMP", ["RGB", "L", "RGBA", "P"]),
        ("GIF", ["RGB", "L", "P"]),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_formats(form: str, modes: list[str], channels: int) -> None:
    """As Pillow converts them; grey within 2 of 255, since weights of colours are rounded.

    Of a JPEG, which TensorFlow decodes by the fast integer transform, the mean difference is < 3.
    """
    for mode in modes:
        picture = draw(12, 10, mode)
        image = ImageFeature(
            name="x", source="x", group="g", height=12, width=10, channels=channels
        )
        encoded = encode(picture, form)
        expected = np.asarray(
            Image.open(io.BytesIO(encoded)).convert("RGBA").convert("RGB" if channels == 3 else "L")
        ).astype(int)
        found = decode_image(encoded, image).numpy().astype(int).squeeze()
        apart = np.abs(found - expected)
        assert apart.mean() < 3 if form == "JPEG" else apart.max() <= (0 if channels == 3 else 2)
