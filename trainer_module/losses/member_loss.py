"""The loss of an ensemble's members: the mean of their losses.

    Σ_i w_i (1/k) Σ_j l(y_i, p_ij)  and  Σ_i w_i,   for the prediction p_ij of member j for row i

The sums are those of a batch with each row k times, divided by k, so that any loss function works.
"""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.losses.weighted_loss import (
    LossFunction,
    LossSums,
    WeightedLoss,
    loss_sums,
)


def member_loss(loss: LossFunction) -> LossFunction:
    """Return the loss of a model whose outputs have an axis of members in training.

    Args:
        loss: The loss of one prediction `[rows, units]`.

    Returns:
        A loss function of outputs `[rows, members, units]`. For outputs `[rows, units]`, which
        the model returns outside of training, it is the given loss.
    """
    if isinstance(loss, WeightedLoss):
        values = {f.name: getattr(loss, f.name) for f in dataclasses.fields(WeightedLoss)}
        return MemberLoss(**values)
    return functools.partial(_mean_over_members, loss)


@dataclasses.dataclass(frozen=True)
class MemberLoss(WeightedLoss):
    """A `WeightedLoss` that is the mean over members; see the module."""

    def __call__(
        self, labels: Tensors, outputs: Tensors, sample_weight: Tensors = None
    ) -> LossSums:
        """Return both sums for outputs `[rows, members, units]` or `[rows, units]`."""
        return _mean_over_members(super().__call__, labels, outputs, sample_weight)


def _mean_over_members(
    loss: LossFunction, labels: Tensors, outputs: Tensors, sample_weight: Tensors
) -> LossSums:
    if outputs.shape.rank != 3:
        return loss_sums(loss, labels, outputs, sample_weight)
    members = outputs.shape[1]

    def repeated(values: Tensors) -> Tensors:
        return tf.repeat(values, members, axis=0)

    flat = tf.reshape(outputs, [-1, outputs.shape[2]])
    weights = None if sample_weight is None else repeated(sample_weight)
    sums = loss_sums(loss, repeated(labels), flat, weights)
    return LossSums(*(value / tf.cast(members, value.dtype) for value in sums))
