"""encode: image. Pictures of one shape, as bytes per row: a separate output, packed with no other.

Beside it, the sums over a row's pixels of each channel, of x and of x², from which
`ParquetTransform` learns mean and variance. An analyzer would decode each picture a second time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shared_core.feature_layout import ImageFeature
from shared_core.images import decode_image
from transform.analyzers.fitted import FittedColumn
from transform.block import Explanation, Separate, tf
from transform.encode.encoder import Encoder, Inputs, Members, option_of
from transform.spec.encoders import Image

_BEGINNINGS = (b"\xff\xd8", b"\x89P", b"BM", b"GI")  # of JPEG, PNG, BMP and GIF


def _apply(inputs: Inputs, members: Members) -> list[Separate]:
    """Return an output per column: its encoded or decoded pictures, string `[batch]`."""
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
    outputs = []
    for image, encoded in zip(images, texts, strict=True):
        stored, sums = _stored(_present(encoded, image), image)
        outputs.append(Separate(stored, image, {image.sums: sums}))
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


def _stored(encoded: tf.Tensor, image: ImageFeature) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what is written, string `[batch]`, and sums, int64 `[batch, 2 * channels]`.

    Picture by picture, to bound the memory.
    """
    size = math.prod(image.shape)

    def of_one(picture: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = decode_image(picture, image)
        # Float64 holds the sums of a picture exactly, and adds up several times as fast.
        x = tf.reshape(tf.cast(pixels, tf.float64), [-1, image.channels])
        sums = tf.concat([tf.reduce_sum(x, axis=0), tf.reduce_sum(x * x, axis=0)], axis=0)
        if image.store == "pixels":  # a serialized tensor ends with its content
            picture = tf.strings.substr(tf.io.serialize_tensor(pixels), -size, size)
        return picture, tf.cast(sums, tf.int64)

    specs = tf.TensorSpec([], tf.string), tf.TensorSpec([2 * image.channels], tf.int64)
    return tf.map_fn(of_one, encoded, fn_output_signature=specs)


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
