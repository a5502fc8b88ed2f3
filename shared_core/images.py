"""Pictures in a graph: files become pixels of one shape, in Transform, training and serving.

Loads no TensorFlow when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

    from shared_core.feature_layout import ImageFeature


def decode_image(encoded: tf.Tensor, image: ImageFeature) -> tf.Tensor:
    """Return the pixels of one JPEG, PNG, BMP or GIF (its first frame), a string scalar.

    A picture of another shape is resized by bilinear interpolation, antialiased, and rounded once:
    `crop` scales it until it covers the shape, and cuts its middle; `pad` scales it until it fits
    inside, and centres it on black; `stretch` scales height and width separately.

    Args:
        encoded: Content of a file.
        image: The shape, and how to reach it.

    Returns:
        uint8 `[height, width, channels]`.
    """
    import tensorflow as tf

    def decoded(channels: int) -> tf.Tensor:
        pixels = tf.io.decode_image(encoded, channels, expand_animations=False)
        return tf.ensure_shape(pixels, [None, None, channels])

    pixels = decoded(3) if image.channels == 3 else _grey(encoded, decoded)
    fits = tf.reduce_all(tf.equal(tf.shape(pixels)[:2], image.shape[:2]))
    pixels = tf.cond(fits, lambda: pixels, lambda: _resize(pixels, image))
    return tf.ensure_shape(pixels, image.shape)


def _grey(encoded: tf.Tensor, decoded: Callable[[int], tf.Tensor]) -> tf.Tensor:
    """Return one channel; TensorFlow decodes BMP and GIF as three channels alone."""
    import tensorflow as tf

    begins = tf.equal(tf.strings.substr(encoded, 0, 2), ["BM", "GI"])
    return tf.cond(
        tf.reduce_any(begins),
        lambda: tf.image.rgb_to_grayscale(decoded(3)),
        lambda: decoded(1),
    )


def _resize(pixels: tf.Tensor, image: ImageFeature) -> tf.Tensor:
    import tensorflow as tf

    size = tf.constant(image.shape[:2])
    if image.resize == "pad":
        resized = tf.image.resize_with_pad(pixels, image.height, image.width, antialias=True)
    elif image.resize == "stretch":
        resized = tf.image.resize(pixels, size, antialias=True)
    else:
        given = tf.cast(tf.shape(pixels)[:2], tf.float64)
        scale = tf.reduce_max(tf.cast(size, tf.float64) / given)
        covering = tf.maximum(tf.cast(tf.round(given * scale), tf.int32), size)
        top, left = tf.unstack((covering - size) // 2)
        resized = tf.image.resize(pixels, covering, antialias=True)
        resized = resized[top : top + image.height, left : left + image.width]
    return tf.saturate_cast(tf.round(resized), tf.uint8)


def read_images(
    features: Mapping[str, Any], images: Iterable[ImageFeature]
) -> dict[str, tf.Tensor]:
    """Return transformed features with the pixels of each image among them.

    Args:
        features: Transformed feature -> tensor; an image is a string `[rows]`, as Transform wrote
            it.
        images: The images of the layout.

    Returns:
        The same features, where an image is uint8 `[rows, height, width, channels]`.
    """
    import tensorflow as tf

    found = dict(features)
    for image in images:
        stored = found.get(image.name)
        if stored is None:
            continue
        if image.store == "pixels":
            found[image.name] = tf.reshape(tf.io.decode_raw(stored, tf.uint8), [-1, *image.shape])
        else:
            spec = tf.TensorSpec(image.shape, tf.uint8)
            found[image.name] = tf.map_fn(
                lambda one, image=image: decode_image(one, image), stored, fn_output_signature=spec
            )
    return found
