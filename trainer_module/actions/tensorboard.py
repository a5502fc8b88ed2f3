"""Scalars for TensorBoard."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.actions.action import Action, EpochEnd, FitResult, LoopProgress


class TensorBoardScalars(Action):
    """Writes scalars to `<directory>/train` and `<directory>/eval`."""

    def __init__(self, directory: str) -> None:
        """Creates the writers."""
        self._train = tf.summary.create_file_writer(f"{directory}/train")
        self._eval = tf.summary.create_file_writer(f"{directory}/eval")

    def on_loop(self, progress: LoopProgress) -> None:
        """Writes loss, gradient norm, learning rate and rows per second."""
        with self._train.as_default(step=progress.step):
            tf.summary.scalar("loss", progress.loss)
            tf.summary.scalar("gradient_norm", progress.gradient_norm)
            tf.summary.scalar("learning_rate", progress.learning_rate)
            tf.summary.scalar("examples_per_second", progress.rows / max(progress.seconds, 1e-9))

    def on_epoch(self, end: EpochEnd) -> bool:
        """Writes the evaluation."""
        with self._eval.as_default(step=end.step):
            for name, value in end.metrics.items():
                tf.summary.scalar(name, value)
        return False

    def on_end(self, result: FitResult) -> None:
        """Closes the files."""
        self._train.close()
        self._eval.close()
