"""Check the arguments of functions that compute gradients of a loss."""

from __future__ import annotations

import keras

from trainer_module.checks.batch import check_batch
from trainer_module.checks.custom_steps import reject_custom_train_step, warn_compile_args_ignored
from trainer_module.checks.model import check_built
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.gradients.chunks import to_tensors


def checked_batch(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors,
    *,
    by: str,
) -> tuple[Tensors, Tensors, Tensors]:
    """Return features, labels and weights as tensors.

    Args:
        model: A built Keras model.
        loss_fn: The loss that is used; there is a warning if the model was compiled with another.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]` or None.
        by: Name of the calling function, for the message.

    Raises:
        ValueError: The model is not built or overrides `compute_loss`, or tensors differ in their
            number of rows.
    """
    check_built(model)
    check_batch(features, labels, sample_weight)
    reject_custom_train_step(model, ("compute_loss",), by=by)
    warn_compile_args_ignored(model, loss_fn)
    return to_tensors((features, labels, sample_weight))
