"""Say what a model was compiled with that has no effect here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from trainer_module.checks.warn_once import warn_once
from trainer_module.common.fingerprint import to_fingerprint
from trainer_module.common.json_values import Json
from trainer_module.common.keras_arguments import REPLACEMENTS
from trainer_module.common.tensors import LossLike
from trainer_module.losses.nested import is_nested, leaves

# `jit_compile` is not here: Keras keeps what "auto" became, and it changes no result.
_NOT_BY_A_STEP: dict[str, Any] = {
    "metrics": None,
    "weighted_metrics": None,
    "run_eagerly": False,
    "steps_per_execution": 1,
}


def warn_compile_args_ignored(
    model: keras.Model,
    loss: LossLike = None,
    *,
    optimizer: keras.optimizers.Optimizer | None = None,
) -> None:
    """Log one line, once per model, with the arguments of `compile` that have no effect.

    Args:
        model: A Keras model; it may be compiled for `evaluate`.
        loss: The loss that is used. The same loss and `loss_weights` are not in the line.
        optimizer: The optimizer that is used; None: the caller takes no steps, and only the loss
            is compared.
    """
    if not model.compiled:
        return
    compiled = dict(getattr(getattr(model, "_compile_config", None), "config", None) or {})
    lost = [] if loss is None else list(_lost_losses(model, compiled, loss))
    if optimizer is not None:
        lost = [*_lost_optimizer(compiled.get("optimizer"), optimizer), *lost]
        lost += [
            (name, f"{name}={_shown(compiled[name])}")
            for name, default in _NOT_BY_A_STEP.items()
            if (compiled.get(name) or default) != default
        ]
    if not lost:
        return
    instead = "; ".join(f"{name}: {REPLACEMENTS[name]}" for name, _ in lost)
    warn_once(
        f"model {model.name!r} was compiled with {', '.join(text for _, text in lost)}: not used "
        f"here. {instead}.",
        about=model,
        topic="compile",
    )


def _lost_optimizer(theirs: Any, ours: keras.optimizers.Optimizer) -> Iterator[tuple[str, str]]:
    theirs = keras.optimizers.get(theirs)
    theirs = getattr(theirs, "inner_optimizer", theirs)  # of LossScaleOptimizer
    if theirs is None or theirs is ours:
        return
    before, now = to_fingerprint(theirs), to_fingerprint(ours)
    if before == now:
        return
    shown = [
        f"{key}={value}"
        for key, value in before.items()
        if now.get(key) != value and isinstance(value, (bool, int, float, str)) and key != "class"
    ]
    if before["class"] != now["class"]:
        shown = [text for text in shown if text.startswith("learning_rate=")]
    yield "optimizer", f"optimizer={type(theirs).__name__}({', '.join(shown)})"


def _lost_losses(
    model: keras.Model, compiled: Mapping[str, Any], loss: LossLike
) -> Iterator[tuple[str, str]]:
    theirs, weights = compiled.get("loss"), compiled.get("loss_weights")
    our_weights = getattr(loss, "loss_weights", None)
    loss = getattr(loss, "loss", loss)  # the argument of weighted_loss
    names: list[str] = list(getattr(model, "output_names", None) or ())
    if theirs is not None and not _same(theirs, loss, names, _loss_facts):
        yield "loss", f"loss={_shown(theirs)}"
    if weights is None:
        return
    ones = dict.fromkeys(leaves(weights), 1.0)
    if not _same(weights, our_weights, names, float) and leaves(weights) != ones:
        yield "loss_weights", f"loss_weights={_shown(weights)}"


def _same(theirs: Any, ours: Any, names: list[str], facts: Callable[[Any], Json]) -> bool:
    """Return whether two structures have the same leaves, by the place of their output."""

    def by_output(structure: Any) -> dict[Any, Json]:
        found = {p: facts(leaf) for p, leaf in leaves(structure).items() if leaf is not None}
        if len(found) == 1:  # as the only one its output has no name
            return {(): next(iter(found.values()))}
        place = {name: number for number, name in enumerate(names)}
        return {(place.get(str(p[0]), p[0]), *p[1:]): value for p, value in found.items()}

    if theirs is ours:
        return True
    try:
        there, here = by_output(theirs), by_output(ours)
    except (TypeError, ValueError):
        return False
    if set(there) == {()}:  # Keras uses a single one for each output
        return bool(here) and all(value == there[()] for value in here.values())
    return there == here


def _loss_facts(loss: LossLike) -> Json:
    """Return what is the same for a name, the function and the class of one loss of Keras."""
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    function = getattr(loss, "fn", loss)
    options = dict(getattr(loss, "_fn_kwargs", {}))
    if function is not loss:
        defaults = inspect.signature(function).parameters
        options = {k: v for k, v in options.items() if k in defaults and defaults[k].default != v}
        if loss.reduction != "sum_over_batch_size":
            options["reduction"] = loss.reduction
    return to_fingerprint([function, options])


def _shown(value: Any) -> str:
    """Return names instead of the addresses of objects."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_shown(each)}' for key, each in value.items())}}}"
    if is_nested(value):
        return f"[{', '.join(map(_shown, value))}]"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__)
