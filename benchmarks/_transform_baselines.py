"""What a TFX user writes without us: `preprocessing_fn`s to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

LOW, HIGH = -5.0, 5.0  # clip_z_score
QUANTILE_EPSILON = 0.001  # the error of ours


def one_call_per_column(
    inputs: Mapping[str, Any], custom_config: Mapping[str, Any]
) -> dict[str, Any]:
    """Each column through the same TFT call, with its own output."""
    scale = _SCALES[custom_config["scale"]]
    return {name: scale(_fill_in_missing(column)) for name, column in inputs.items()}


def stacked(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, Any]:
    """The columns side by side and nothing else: what reading and writing alone cost."""
    columns = [_fill_in_missing(column) for column in inputs.values()]
    return {"packed_float": tf.concat(columns, axis=1)}


def stacked_z_score(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, Any]:
    """The columns side by side, then one TFT call for all: the best that TFT itself can do."""
    columns = [_fill_in_missing(column) for column in inputs.values()]
    return {"packed_float": tft.scale_to_z_score(tf.concat(columns, axis=1), elementwise=True)}


def vocabularies(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, Any]:
    """Each column's ids by its own vocabulary."""
    return {
        name: tft.compute_and_apply_vocabulary(
            _fill_in_missing(column), num_oov_buckets=1, vocab_filename=name
        )
        for name, column in inputs.items()
    }


def _fill_in_missing(column: Any) -> tf.Tensor:
    """`[batch, 1]`, as in the taxi template: 0 or an empty text where there is no value."""
    if not isinstance(column, tf.SparseTensor):
        return column
    default: Any = "" if column.dtype == tf.string else 0
    whole = tf.SparseTensor(column.indices, column.values, [column.dense_shape[0], 1])
    return tf.sparse.to_dense(whole, default)


def _robust(x: tf.Tensor) -> tf.Tensor:
    low, median, high = tf.unstack(tft.quantiles(x, 4, QUANTILE_EPSILON)[0])
    return (x - median) / (high - low)


def _clip_z_score(x: tf.Tensor) -> tf.Tensor:
    return tft.scale_to_z_score(tf.clip_by_value(x, LOW, HIGH))


_SCALES: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "z_score": tft.scale_to_z_score,
    "min_max": tft.scale_to_0_1,
    "robust": _robust,
    "gaussian": tft.scale_to_gaussian,
    "clip_z_score": _clip_z_score,
}
