"""scale: log1p. sign(x) log(1 + |x|): log(1 + x) for x >= 0, odd, finite for all x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transform.scale.scaler import Scaler, ToScale

if TYPE_CHECKING:
    import tensorflow as tf


def _apply(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    return tf.sign(columns.x) * tf.math.log1p(tf.abs(columns.x))


SCALER = Scaler(name="log1p", learns="nothing", apply=_apply)
