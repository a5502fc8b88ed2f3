"""encode: image. Pictures of one shape, as bytes per row: a separate output, packed with no other.

The pixels x of channel c, over all N pixels of the analysis data, have

    mean_c = Σ x / N        variance_c = Σ x² / N - mean_c²

Both sums are whole numbers, so that order and number of shards do not matter. The model
normalises by these constants, (x - mean_c) / sqrt(variance_c): what is written stays uint8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shared_core.feature_layout import ImageFeature
from shared_core.fitted import PIXELS
from shared_core.images import decode_image
from transform.analyzers.fitted import FittedColumn, keep
from transform.block import Explanation, Separate, tf
from transform.encode.encoder import Encoder, Inputs, Members, option_of
from transform.spec.encoders import Image

_BEGINNINGS = (b"\xff\xd8", b"\x89P", b"BM", b"GI")  # of JPEG, PNG, BMP and GIF


def _apply(inputs: Inputs, members: Members) -> list[Separate]:
    """Return an output per column: its encoded or decoded pictures, string `[batch]`."""
    import tensorflow_transform as tft

    images = [
        ImageFeature(
            name=inputs.files[name],
            source=name,
            group=each.group.name,
            **option_of(each).model_dump(),
        )
        for each in members.resolved
        for name in each.columns
    ]
    texts = tf.unstack(inputs.dense.texts(members.names), num=len(images), axis=1)
    encoded = [_present(*each) for each in zip(texts, images, strict=True)]
    of_batch = [tf.size(texts[0], tf.int64)[tf.newaxis], *map(_sums, encoded, images)]
    rows, *sums = tf.split(
        tft.sum(tf.concat(of_batch, axis=0)[tf.newaxis], reduce_instance_dims=False),
        [1, *(2 * image.channels for image in images)],
    )
    outputs = []
    for image, values, of_image in zip(images, encoded, sums, strict=True):
        pixels = tf.maximum(tf.cast(rows * image.height * image.width, tf.float64), 1.0)
        mean, square = tf.unstack(tf.reshape(tf.cast(of_image, tf.float64), [2, -1]) / pixels)
        variance = tf.maximum(square - tf.square(mean), 0.0)
        kept = keep(tf.stack([mean, variance])[tf.newaxis], PIXELS, [image.source])
        with tf.control_dependencies([kept]):  # what no output depends on is not in the saved graph
            stored = _pixels(values, image) if image.store == "pixels" else tf.identity(values)
        outputs.append(Separate(stored, image))
    return outputs


def _present(encoded: tf.Tensor, image: ImageFeature) -> tf.Tensor:
    """Return pictures `[batch]`; fail in the graph where one is missing, or no picture."""
    begins = tf.equal(tf.strings.substr(encoded, 0, 2)[:, tf.newaxis], _BEGINNINGS)
    check = tf.raw_ops.Assert(  # as in columns/inputs.py
        condition=tf.reduce_all(tf.reduce_any(begins, axis=1)),
        data=[
            f"a row of column {image.source} (group {image.group}, encode: image) has no picture: "
            "give the bytes of a JPEG, PNG, BMP or GIF, and leave out rows without one"
        ],
        name="has_picture",
    )
    with tf.control_dependencies([check]):
        return tf.identity(encoded)


def _sums(encoded: tf.Tensor, image: ImageFeature) -> tf.Tensor:
    """Return the sums over the pixels of a batch, of x and of x²; int64 `[2 * channels]`."""

    def of_one(picture: tf.Tensor) -> tf.Tensor:
        # Float64 holds the sums of a picture exactly, and adds up several times as fast.
        x = tf.reshape(tf.cast(decode_image(picture, image), tf.float64), [-1, image.channels])
        sums = tf.reduce_sum(x, axis=0), tf.reduce_sum(x * x, axis=0)
        return tf.cast(tf.concat(sums, axis=0), tf.int64)

    spec = tf.TensorSpec([2 * image.channels], tf.int64)
    return tf.reduce_sum(tf.map_fn(of_one, encoded, fn_output_signature=spec), axis=0)


def _pixels(encoded: tf.Tensor, image: ImageFeature) -> tf.Tensor:
    """Return the pixels of each picture as bytes, `[batch]`; row by row, to bound the memory."""
    size = math.prod(image.shape)

    def of_one(picture: tf.Tensor) -> tf.Tensor:
        # A serialized tensor ends with its content.
        return tf.strings.substr(tf.io.serialize_tensor(decode_image(picture, image)), -size, size)

    return tf.map_fn(of_one, encoded, fn_output_signature=tf.TensorSpec([], tf.string))


def _explain(option: Image, columns: Sequence[ImageFeature], fitted: FittedColumn) -> Explanation:
    (image,) = columns
    return {"mean": list(image.mean), "standard_deviation": [math.sqrt(v) for v in image.variance]}


IMAGE = Encoder(
    name="image",
    takes={"string": "encoded pictures"},
    reads="texts",
    apply=_apply,
    endings=lambda option: [],
    names_file=True,
    explain=_explain,
)
