"""Detect methods that a model overrides for `fit` of Keras and that this trainer does not call."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from trainer_module.checks.warn_once import warn_once
from trainer_module.common.tensors import LossLike

_INSTEAD = {
    "compute_loss": (
        "give that loss as loss_fn, a function (labels, outputs, sample_weight) -> (numerator, "
        "denominator); add terms that need the inputs with add_loss in a layer"
    ),
    "train_step": (
        "write the step with accumulate_gradients, mean_gradients and apply_gradients, or move "
        "its computation into the layers and the loss function"
    ),
}


def reject_custom_train_step(model: keras.Model, names: Sequence[str], *, by: str) -> None:
    """Raise ValueError for a model that overrides `compute_loss` or `train_step`.

    Args:
        model: A Keras model.
        names: Names of the methods that must not be overridden.
        by: Name of the caller that does not call them, for the message.
    """
    for name in _overridden(model, names):
        raise ValueError(
            f"model {model.name!r} ({type(model).__name__}) overrides {name}, which {by} "
            f"does not call: {_INSTEAD[name]}."
        )


def warn_overrides_ignored(model: keras.Model, names: Sequence[str], *, by: str) -> None:
    """Warn, once per model and method, about overridden methods that are not called.

    Args:
        model: A Keras model.
        names: Names of the methods.
        by: Name of the caller that does not call them, for the message.
    """
    for name in _overridden(model, names):
        warn_once(
            f"model {model.name!r} ({type(model).__name__}) overrides {name}, which {by} "
            "does not call: it has no effect.",
            about=model,
            topic=name,
        )


def warn_compile_args_ignored(model: keras.Model, loss: LossLike = None) -> None:
    """Warn, once per model, that the arguments of `compile` are ignored.

    Args:
        model: A Keras model; it may be compiled for `evaluate`.
        loss: The loss that is used. There is no warning for a model compiled with the same loss.
    """
    theirs = getattr(model, "loss", None)
    loss = getattr(loss, "loss", loss)  # the argument of weighted_loss
    if not model.compiled or theirs is None or theirs is loss or theirs == loss:
        return
    warn_once(
        f"model {model.name!r} was compiled with loss={theirs!r}: its optimizer, loss and metrics "
        "are not used; those given here are used instead (trainer.optimizer, trainer.loss and "
        "trainer.metrics in a pipeline). Remove model.compile, or pass the same loss.",
        about=model,
        topic="compile",
    )


def _overridden(model: keras.Model, names: Sequence[str]) -> list[str]:
    return [
        name
        for name in names
        if not (getattr(getattr(model, name), "__module__", None) or "").startswith("keras.")
    ]
