"""Detect methods that a model overrides for `fit` of Keras and that this trainer does not call."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from trainer_module.checks.warn_once import warn_once

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


def _overridden(model: keras.Model, names: Sequence[str]) -> list[str]:
    return [
        name
        for name in names
        if not (getattr(getattr(model, name), "__module__", None) or "").startswith("keras.")
    ]
