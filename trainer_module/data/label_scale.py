"""A number to predict, on a scale that a model learns from: near 0, and about 1 wide.

    z = (g(y) - mean) / deviation       y: the label, g(y) = y (z_score) or log(y + shift) (log)

Mean and deviation are of g(y) over the training rows. A model that starts near 0 takes a hundred
thousand steps of 0.001 to reach a price of 300,000, and a loss in squared prices overflows what
clipping and half precision expect; the logarithm of a skewed label makes errors relative. Labels
are scaled as they are read, outputs are brought back where they are judged or served, so that
metrics and predictions are in the label's own unit; the loss is on the scale that is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf

ScaleName = Literal["z_score", "log"]

# Losses that mean the same on any scale; of others (poisson, percentages) a scaled label is wrong.
_LOSSES = ("squarederror", "absoluteerror", "huber", "cosh", "mse", "mae")
_OTHERS = ("percentage", "logarithmic")
_SKEWED = 1.0


class Moments(NamedTuple):
    """Count, mean and central sums of powers of what was seen, per position of a label.

    Merged pairwise, which stays exact to rounding where plain sums of powers cancel (Pébay,
    "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order
    statistical moments", 2008).
    """

    rows: int
    mean: np.ndarray
    square: np.ndarray
    cube: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Returns those of `[rows, k]` values, in float64."""
        values = np.asarray(values, np.float64)
        mean = values.mean(axis=0)
        centred = values - mean
        return cls(len(values), mean, (centred**2).sum(axis=0), (centred**3).sum(axis=0))

    def merged(self, other: Moments) -> Moments:
        """Returns those of both."""
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
        return Moments(rows, self.mean + delta * other.rows / rows, square, cube)

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation, of all rows."""
        return np.sqrt(self.square / self.rows)

    @property
    def skewness(self) -> np.ndarray:
        """The third standardised moment; 0 for a constant."""
        deviation = self.deviation
        cubed = np.where(deviation > 0, deviation, 1.0) ** 3
        return np.where(deviation > 0, self.cube / self.rows / cubed, 0.0)


class LabelMoments(NamedTuple):
    """Moments of a label as it is, and of the logarithms that may take its place, where defined."""

    as_is: Moments
    log: Moments | None
    log1p: Moments | None

    @classmethod
    def of(cls, labels: np.ndarray) -> LabelMoments:
        """Returns those of labels `[rows, ...]`."""
        values = np.asarray(labels, np.float64).reshape(len(labels), -1)
        return cls(
            Moments.of(values),
            Moments.of(np.log(values)) if (values > 0).all() else None,
            Moments.of(np.log1p(values)) if (values >= 0).all() else None,
        )

    def merged(self, other: LabelMoments) -> LabelMoments:
        """Returns those of both."""

        def both(one: Moments | None, two: Moments | None) -> Moments | None:
            return one.merged(two) if one and two else None

        return LabelMoments(
            self.as_is.merged(other.as_is),
            both(self.log, other.log),
            both(self.log1p, other.log1p),
        )


@dataclass(frozen=True)
class LabelScale:
    """How a label is trained on, and the way back.

    Attributes:
        name: z_score, or log for the z-score of `log(label + shift)`.
        shift: 0, or 1 where labels may be 0.
        mean: Of the label or its logarithm in the training rows, one number per position.
        deviation: Likewise.
    """

    name: ScaleName
    shift: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def scaled(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns z, float32, for labels `[rows, ...]`.

        A label that has no logarithm (of a row that the scale was not learned from) becomes that
        of the smallest positive number, not NaN.
        """
        wide = tf.cast(labels, tf.float64)
        if self.name == "log":
            wide = tf.math.log(tf.maximum(wide + self.shift, np.finfo(np.float32).tiny))
        return tf.cast((wide - self._like(wide, self.mean)) / self._spread(wide), tf.float32)

    def unscaled(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns outputs `[rows, ...]` in the label's own unit, float32 and finite."""
        wide = tf.cast(outputs, tf.float64)
        wide = wide * self._spread(wide) + self._like(wide, self.mean)
        largest = float(np.finfo(np.float32).max)
        if self.name == "log":
            wide = tf.maximum(tf.exp(tf.minimum(wide, np.log(largest))) - self.shift, 0.0)
        return tf.cast(tf.clip_by_value(wide, -largest, largest), tf.float32)

    def _spread(self, like: tf.Tensor) -> tf.Tensor:
        return self._like(like, self.deviation)

    def _like(self, tensor: tf.Tensor, numbers: tuple[float, ...]) -> tf.Tensor:
        """The numbers in the shape of a row of `tensor`; one number fits any shape."""
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
    wanted: Literal["auto", "none"] | ScaleName,
    moments: LabelMoments,
    *,
    loss: str | None,
    own_model: bool,
    whole: bool,
    label: str,
) -> LabelScale | None:
    """Returns the scale that a regression is trained on, None for the label as it is.

    Args:
        wanted: `auto` takes z_score, or log where the label is skewed (skewness above 1) and its
            logarithm is not half as much; none for a model of the user's, which may bring its
            outputs back itself, and for a loss that is not one of differences.
        moments: Of the training rows.
        loss: Name or dotted path; None: the default.
        own_model: Whether `model_fn` builds the model.
        whole: Whether all labels are whole numbers: counts, whose log is that of 1 more.
        label: Name, for messages.

    Raises:
        ValueError: The label has no logarithm, or a loss that is another one on scaled labels.
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
            f"trainer.label_scale={wanted!r}: trainer.loss={loss!r} is another loss on scaled "
            "labels; leave label_scale out, or use mean_squared_error, mean_absolute_error or "
            "huber."
        )
    if wanted == "log" and logarithm is None:
        raise ValueError(
            f"trainer.label_scale='log': trainer.label={label!r} goes down to "
            "0 or below it in fractions, which have no logarithm; use z_score."
        )
    chosen = moments.as_is if wanted == "z_score" or logarithm is None else logarithm
    deviation = np.where(chosen.deviation > 0, chosen.deviation, 1.0)
    return LabelScale(
        name=wanted,
        shift=shift if wanted == "log" else 0.0,
        mean=tuple(chosen.mean.tolist()),
        deviation=tuple(deviation.tolist()),
    )
