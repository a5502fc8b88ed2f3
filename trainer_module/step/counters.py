"""Variables that count the windows of a step."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.step.reports import StepReport
from trainer_module.window.update import Update


class StepCounters:
    """Numbers of windows, int64 scalars. Checkpoints have all of them except `consecutive`.

    Attributes:
        step: Windows taken, without failed ones.
        empty: Windows with Σ w = 0, which updated nothing.
        non_finite: Windows skipped because they were not finite.
        loss_scale: Windows skipped because the loss scale was too large.
        consecutive: Windows in a row, up to now, that were skipped because they were not finite.
    """

    def __init__(self) -> None:
        """Create the variables; call it in the strategy's scope."""
        self.step = _counter("step")
        self.empty = _counter("skipped_empty")
        self.non_finite = _counter("skipped_non_finite")
        self.loss_scale = _counter("skipped_loss_scale")
        self.consecutive = _counter("consecutive_skips")

    @property
    def skipped(self) -> dict[str, int]:
        """The number of windows that updated nothing, by reason."""
        return {
            "empty": int(self.empty.numpy()),
            "non_finite": int(self.non_finite.numpy()),
            "loss_scale": int(self.loss_scale.numpy()),
        }

    def state(self) -> list[tf.Variable]:
        """Return the variables to checkpoint, in a fixed order."""
        return [self.step, self.empty, self.non_finite, self.loss_scale]

    def count(
        self,
        report: StepReport,
        update: Update,
        *,
        scale: tf.Tensor | None,
        skips_non_finite: bool,
    ) -> None:
        """Count a window.

        Args:
            report: Its report.
            update: Its update.
            scale: The loss scale before it; None without a loss scale.
            skips_non_finite: Whether windows that are not finite are skipped.
        """
        skipped = tf.logical_and(update.is_rejected, tf.logical_not(report.failed))
        by_scale = tf.constant(False)
        if scale is not None:
            by_scale = tf.logical_and(skipped, scale > 1.0)
        for counter, happened in (
            (self.empty, update.is_empty),
            (self.loss_scale, by_scale),
            (self.non_finite, tf.logical_and(skipped, tf.logical_not(by_scale))),
            (self.step, tf.logical_not(report.failed)),
        ):
            counter.assign_add(tf.cast(happened, tf.int64))
        if skips_non_finite:
            counted = tf.logical_and(update.is_rejected, tf.logical_not(by_scale))
            so_far = self.consecutive.read_value()
            more = so_far + tf.cast(tf.logical_not(report.failed), tf.int64)
            reset = tf.where(update.is_empty, so_far, 0)
            self.consecutive.assign(tf.where(counted, more, reset))


def _counter(name: str) -> tf.Variable:
    return tf.Variable(
        0,
        dtype=tf.int64,
        trainable=False,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
