"""Metrics of a user's own, named by their dotted paths, and what is none."""

from __future__ import annotations

import keras

CLASSES = 7


class ScoreOfPositives(keras.metrics.Metric):
    """A metric of a user's own: the mean score of the rows whose label is above 0."""

    def __init__(self, name="positives", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        positive = keras.ops.cast(y_true[:, 0] > 0, "float32")
        if sample_weight is not None:
            positive *= keras.ops.cast(sample_weight, "float32")
        self.total.assign(self.total + keras.ops.sum(positive * y_pred[:, 0]))
        self.count.assign(self.count + keras.ops.sum(positive))

    def result(self):
        return self.total / self.count


def first_score_above_second(labels, outputs):
    """A metric as a function of a user's own, one value per row."""
    return keras.ops.cast(outputs[:, 0] > 0.5, "float32")


def top_5(labels, outputs, weights):
    """No metric: it takes weights."""
    raise NotImplementedError
