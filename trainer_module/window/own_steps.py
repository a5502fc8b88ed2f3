"""What a model brings for Keras' `fit` and nobody here calls: refused, or told once."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import keras
from absl import logging

_INSTEAD = {
    "compute_loss": (
        "give that loss as loss_fn, a function (labels, outputs, sample_weight) -> (numerator, "
        "denominator); what needs the inputs, a layer adds by add_loss"
    ),
    "train_step": (
        "write the step with accumulate_gradients, mean_gradients and apply_gradients, or move "
        "what it does into the layers and the loss function"
    ),
}

_told: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def refuse_own_steps(model: keras.Model, names: Sequence[str], *, by: str) -> None:
    """Raises ValueError for a `compute_loss` or `train_step` of the model's own.

    Args:
        model: Any.
        names: Of the methods that may not be.
        by: Who does not call them.
    """
    for name in _own(model, names):
        raise ValueError(
            f"model {model.name!r} ({type(model).__name__}) has a {name} of its own, which {by} "
            f"does not call, so that what it does would be left out: {_INSTEAD[name]}."
        )


def tell_what_is_not_called(model: keras.Model, names: Sequence[str], *, by: str) -> None:
    """Warns, once for a model, of methods of its own that are not called."""
    for name in _own(model, names):
        _tell_once(
            model,
            name,
            f"model {model.name!r} ({type(model).__name__}) has a {name} of its own, which {by} "
            "does not call: what it does is left out.",
        )


def tell_what_compile_said(model: keras.Model, loss: Any = None) -> None:
    """Warns, once for a model, that what `compile` was given has no say.

    Args:
        model: Any; one may be compiled for `evaluate`.
        loss: What is used; nothing is told of a model that was compiled with the same.
    """
    theirs = getattr(model, "loss", None)
    loss = getattr(loss, "loss", loss)  # what a weighted_loss was made of
    if not model.compiled or theirs is None or theirs is loss or theirs == loss:
        return
    _tell_once(
        model,
        "compile",
        f"model {model.name!r} was compiled with loss={theirs!r}: its optimizer, loss and metrics "
        "are not used, but those given here are (trainer.optimizer, trainer.loss and "
        "trainer.metrics in a pipeline). Leave out model.compile, or give the same.",
    )


def _own(model: keras.Model, names: Sequence[str]) -> list[str]:
    return [
        name
        for name in names
        if not (getattr(getattr(model, name), "__module__", None) or "").startswith("keras.")
    ]


def _tell_once(model: keras.Model, what: str, message: str) -> None:
    told = _told.setdefault(model, set())
    if what not in told:
        told.add(what)
        logging.warning("%s", message)
