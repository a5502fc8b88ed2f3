"""Scale a numeric label to a range that a model learns from: near 0, and about 1 wide.

    z = (g(y) - mean) / deviation       y: the label, g(y) = y (z_score) or log(y + shift) (log)

Mean and deviation are those of g(y) over the training rows. A model that starts near 0 takes a
hundred thousand steps of 0.001 to reach a price of 300,000, and a loss in squared prices overflows
the range of clipping and half precision. The logarithm of a skewed label makes errors relative.
Labels are scaled when they are read. Outputs are converted back for evaluation and serving, so that
metrics and predictions are in the label's unit. The loss is on the scaled label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf

from shared_core.feature_layout import MISSING_INT

_ScaleName = Literal["z_score", "log"]

# Losses that mean the same on any scale; others (poisson, percentages) need unscaled labels.
_LOSSES = ("squarederror", "absoluteerror", "huber", "cosh", "mse", "mae")
_OTHERS = ("percentage", "logarithmic")
_SKEWED = 1.0


class _Moments(NamedTuple):
    """Count, mean and central sums of powers of the values so far, per position of a label.

    They are merged pairwise, which stays exact to rounding where plain sums of powers cancel
    (Pébay, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order
    statistical moments", 2008).
    """

    rows: int
    mean: np.ndarray
    square: np.ndarray
    cube: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> _Moments:
        """Return the moments of `[rows, k]` values, in float64."""
        values = np.asarray(values, np.float64)
        mean = values.mean(axis=0)
        centred = values - mean
        return cls(len(values), mean, (centred**2).sum(axis=0), (centred**3).sum(axis=0))

    def merged(self, other: _Moments) -> _Moments:
        """Return the moments of both sets of values."""
        rows = self.rows + other.rows
        delta = other.mean - self.mean
        product = self.rows * other.rows
        square = self.square + other.square + delta**2 * product / rows
        cube = (
            self.cube
            + other.cube
            + delta**3 * product * (self.rows - other.rows) / rows**2
            + 3 * delta * (self.rows * other.square - other.rows * self.square) / rows
        )
        return _Moments(rows, self.mean + delta * other.rows / rows, square, cube)

    @property
    def deviation(self) -> np.ndarray:
        """The population standard deviation."""
        return np.sqrt(self.square / self.rows)

    @property
    def skewness(self) -> np.ndarray:
        """The third standardized moment; 0 for a constant."""
        deviation = self.deviation
        cubed = np.where(deviation > 0, deviation, 1.0) ** 3
        return np.where(deviation > 0, self.cube / self.rows / cubed, 0.0)


class LabelMoments(NamedTuple):
    """Moments of a label, and of its logarithms where they are defined."""

    as_is: _Moments
    log: _Moments | None
    log1p: _Moments | None

    @classmethod
    def of(cls, labels: np.ndarray) -> LabelMoments:
        """Return the moments of labels `[rows, ...]`."""
        values = np.asarray(labels, np.float64).reshape(len(labels), -1)
        return cls(
            _Moments.of(values),
            _Moments.of(np.log(values)) if (values > 0).all() else None,
            _Moments.of(np.log1p(values)) if (values >= 0).all() else None,
        )

    def merged(self, other: LabelMoments) -> LabelMoments:
        """Return the moments of both sets of labels."""

        def both(one: _Moments | None, two: _Moments | None) -> _Moments | None:
            return one.merged(two) if one and two else None

        return LabelMoments(
            self.as_is.merged(other.as_is),
            both(self.log, other.log),
            both(self.log1p, other.log1p),
        )


def label_numbers(labels: tf.Tensor) -> tf.Tensor:
    """Return a regression's labels as float64, with NaN for a missing whole number."""
    wide = tf.cast(labels, tf.float64)
    if labels.dtype != tf.int64:
        return wide
    return tf.where(tf.equal(labels, MISSING_INT), tf.constant(np.nan, tf.float64), wide)


@dataclass(frozen=True)
class LabelScale:
    """Scale of a label in training, and its inverse."""

    name: _ScaleName  # z_score, or log for the z-score of `log(label + shift)`
    shift: float  # 0, or 1 if labels may be 0
    # Mean of the label or its logarithm in the training rows, one number per position
    mean: tuple[float, ...]
    deviation: tuple[float, ...]  # standard deviation of the same values

    def scaled(self, labels: tf.Tensor) -> tf.Tensor:
        """Return z, float32, for labels `[rows, ...]` of any type; the mean is off before the cast.

        A label without a logarithm (in a row that was not used to compute the scale) is replaced by
        the smallest positive number, so that z is not NaN.
        """
        wide = label_numbers(labels)
        if self.name == "log":
            wide = tf.math.log(tf.maximum(wide + self.shift, np.finfo(np.float32).tiny))
        return tf.cast((wide - self._like(wide, self.mean)) / self._spread(wide), tf.float32)

    def unscaled(self, outputs: tf.Tensor) -> tf.Tensor:
        """Return outputs `[rows, ...]` in the label's own unit, float64 and within float32's range.

        A label of 1.7e9 would lose 128 in float32.
        """
        wide = tf.cast(outputs, tf.float64)
        wide = wide * self._spread(wide) + self._like(wide, self.mean)
        largest = float(np.finfo(np.float32).max)
        if self.name == "log":
            wide = tf.maximum(tf.exp(tf.minimum(wide, np.log(largest))) - self.shift, 0.0)
        return tf.clip_by_value(wide, -largest, largest)

    def _spread(self, like: tf.Tensor) -> tf.Tensor:
        return self._like(like, self.deviation)

    def _like(self, tensor: tf.Tensor, numbers: tuple[float, ...]) -> tf.Tensor:
        """Return the numbers in the shape of a row of `tensor`; one number fits any shape."""
        if len(numbers) == 1:
            return tf.constant(numbers[0], tf.float64)
        return tf.reshape(tf.constant(numbers, tf.float64), tensor.shape[1:])


def is_loss_of_differences(loss: str | None) -> bool:
    """Return whether a loss means the same on any scale of the label; None is the default loss."""
    short = (loss or "mse").lower().replace("_", "")
    return any(part in short for part in _LOSSES) and not any(part in short for part in _OTHERS)


def has_logarithm(moments: LabelMoments, *, whole: bool) -> bool:
    """Return whether the log scale is possible for labels: positive ones, or whole numbers >= 0."""
    return (moments.log if moments.log is not None or not whole else moments.log1p) is not None


def find_label_scale(
    wanted: Literal["auto", "none"] | _ScaleName,
    moments: LabelMoments,
    *,
    loss: str | None,
    own_model: bool,
    whole: bool,
    label: str,
) -> LabelScale | None:
    """Return the scale of a regression's label, or None for no scaling.

    Args:
        wanted: `auto` selects log if the label is skewed (skewness above 1) and its logarithm is
            less than half as skewed, otherwise z_score. It selects none for a user's model, which
            may convert its outputs itself, and for a loss that is not of differences.
        moments: Moments of the training rows.
        loss: Name or dotted path; None: the default.
        own_model: Whether `model_fn` builds the model.
        whole: Whether all labels are whole numbers. If so and some are 0, log is log(label + 1).
        label: Name, for messages.
    """
    if wanted == "none":
        return None
    fits = is_loss_of_differences(loss)
    logarithm = moments.log
    shift = 0.0
    if logarithm is None and whole:
        logarithm, shift = moments.log1p, 1.0
    if wanted == "auto":
        if own_model or not fits:
            return None
        skewed = np.abs(moments.as_is.skewness) > _SKEWED
        cured = logarithm is not None and np.all(
            np.abs(logarithm.skewness) < np.abs(moments.as_is.skewness) / 2
        )
        wanted = "log" if skewed.all() and cured else "z_score"
    elif loss is not None and "." not in loss and not fits:
        raise ValueError(
            f"label_scale={wanted!r}: loss={loss!r} is another loss on scaled labels; leave "
            "label_scale out, or use mean_squared_error, mean_absolute_error or huber."
        )
    if wanted == "log" and logarithm is None:
        raise ValueError(
            f"label_scale='log': label={label!r} goes down to 0 or below it in fractions, which "
            "have no logarithm; use z_score."
        )
    chosen = moments.as_is if wanted == "z_score" or logarithm is None else logarithm
    deviation = np.where(chosen.deviation > 0, chosen.deviation, 1.0)
    return LabelScale(
        name=wanted,
        shift=shift if wanted == "log" else 0.0,
        mean=tuple(chosen.mean.tolist()),
        deviation=tuple(deviation.tolist()),
    )
