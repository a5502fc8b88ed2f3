"""Scalars for TensorBoard."""

from __future__ import annotations

import tensorflow as tf
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from trainer_module.actions.action import Action, EpochEnd, FitResult, LoopProgress


class TensorBoardScalars(Action):
    """Writes scalars to `<directory>/train` and `<directory>/eval`."""

    def __init__(self, directory: str) -> None:
        """Creates the writers."""
        self._train = tf.summary.create_file_writer(f"{directory}/train")
        self._eval = tf.summary.create_file_writer(f"{directory}/eval")

    def on_loop(self, progress: LoopProgress) -> None:
        """Writes loss, gradient norm, learning rate and rows per second."""
        values = {
            "loss": progress.loss,
            "gradient_norm": progress.gradient_norm,
            "learning_rate": progress.learning_rate,
            "examples_per_second": progress.rows / max(progress.seconds, 1e-9),
        }
        _write(self._train, progress.step, values)

    def on_epoch(self, end: EpochEnd) -> bool:
        """Writes the evaluation."""
        _write(self._eval, end.step, end.metrics)
        return False

    def on_end(self, result: FitResult) -> None:
        """Closes the files."""
        self._train.close()
        self._eval.close()


def _write(writer: tf.summary.SummaryWriter, step: int, values: dict[str, float]) -> None:
    """Writes all values as one record: a call of tf.summary.scalar for each takes far longer."""
    records = [scalar_pb(name, value) for name, value in values.items()]
    if not records:
        return
    for record in records[1:]:
        records[0].MergeFrom(record)
    with writer.as_default():
        tf.summary.experimental.write_raw_pb(records[0].SerializeToString(), step=step)
