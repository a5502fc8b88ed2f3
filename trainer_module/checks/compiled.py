"""Check optimizers, and warn of arguments of `compile` without effect and of logits as outputs.

No option of an optimizer may act per replica or per micro-batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from trainer_module.checks.warn_once import warn_once
from trainer_module.common.fingerprint import to_fingerprint
from trainer_module.common.keras_arguments import REPLACEMENTS
from trainer_module.common.tensors import Json, LossLike
from trainer_module.losses.weighted_loss import WeightedLoss, at, is_nested, leaves, path_name

# `jit_compile` is not here: Keras keeps what "auto" became, and it changes no result.
_NOT_BY_A_STEP = {
    "metrics": None,
    "weighted_metrics": None,
    "run_eagerly": False,
    "steps_per_execution": 1,
}


def warn_compile_args_ignored(
    model: keras.Model, loss: LossLike, *, optimizer: keras.optimizers.Optimizer | None = None
) -> None:
    """Log one line, once per model, with the arguments of `compile` that have no effect."""
    if not model.compiled:
        return
    compiled = dict(getattr(getattr(model, "_compile_config", None), "config", None) or {})
    names: list[str] = list(getattr(model, "output_names", None) or ())
    lost: dict[str, str] = {}
    if optimizer is not None:
        lost["optimizer"] = _lost_optimizer(compiled.get("optimizer"), optimizer)
        lost |= {
            name: _shown(compiled[name])
            for name, default in _NOT_BY_A_STEP.items()
            if (compiled.get(name) or default) != default
        }
    theirs, weights = compiled.get("loss"), compiled.get("loss_weights")
    # Those of weighted_loss are its attributes.
    if theirs is not None and not _same(theirs, getattr(loss, "loss", loss), names, _loss_facts):
        lost["loss"] = _shown(theirs)
    ours = getattr(loss, "loss_weights", None)
    if {*leaves(weights).values()} - {1, None} and not _same(weights, ours, names, float):
        lost["loss_weights"] = _shown(weights)
    lost = {name: text for name, text in lost.items() if text}
    if lost:
        warn_once(
            f"model {model.name!r} was compiled with "
            f"{', '.join(f'{name}={text}' for name, text in lost.items())}: not used here. "
            f"{'; '.join(f'{name}: {REPLACEMENTS[name]}' for name in lost)}.",
            about=model,
            topic="compile",
        )


def _lost_optimizer(theirs: Any, ours: keras.optimizers.Optimizer) -> str:
    """Return the compiled optimizer with what differs, or "" for the same."""
    theirs = keras.optimizers.get(theirs)
    theirs = getattr(theirs, "inner_optimizer", theirs)  # of LossScaleOptimizer
    if theirs is None or theirs is ours:
        return ""
    before, now = to_fingerprint(theirs), to_fingerprint(ours)
    differ = {key: value for key, value in before.items() if now.get(key) != value}
    kind = differ.pop("class", None)
    shown = [
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in differ.items()
        if isinstance(value, (bool, int, float, str)) and (not kind or key == "learning_rate")
    ]
    return f"{type(theirs).__name__}({', '.join(shown)})" if differ or kind else ""


def _same(theirs: Any, ours: Any, names: list[str], facts: Callable[[Any], Json]) -> bool:
    """Return whether two structures have the same leaves, by the place of their output."""
    place = {name: number for number, name in enumerate(names)}

    def by_output(structure: Any) -> dict[Any, Json]:
        found = {p: facts(leaf) for p, leaf in leaves(structure).items() if leaf is not None}
        if len(found) == 1:  # as the only one its output has no name
            return {(): next(iter(found.values()))}
        return {(place.get(str(p[0]), p[0]), *p[1:]): value for p, value in found.items()}

    try:
        there, here = by_output(theirs), by_output(ours)
    except (TypeError, ValueError):
        return theirs is ours
    if set(there) == {()}:  # Keras uses a single one for each output
        return bool(here) and all(value == there[()] for value in here.values())
    return there == here


def _loss_facts(loss: LossLike) -> Json:
    """Return what is the same for a name, the function and the class of one loss of Keras."""
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    function = getattr(loss, "fn", loss)
    if function is loss:  # attributes may be missing in its configuration
        options = getattr(loss, "__dict__", {}).items()
        return to_fingerprint([loss, {k: v for k, v in options if k[0] != "_" and k != "name"}])
    defaults = inspect.signature(function).parameters
    options = dict(getattr(loss, "_fn_kwargs", {}))
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


_PER_STEP = (
    *("clipnorm", "clipvalue", "global_clipnorm", "use_ema"),
    *("gradient_accumulation_steps", "loss_scale_factor"),
)


def check_optimizer(
    optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy
) -> None:
    """Raise ValueError for an optimizer with unsupported options or of another strategy.

    Unsupported options are those that would act per replica or per micro-batch.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "LossScaleOptimizer decides per replica whether gradients are finite: pass its inner "
            "optimizer; TrainStep scales losses itself for float16 models."
        )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"optimizer={optimizer!r} is not a Keras 3 optimizer: give one, such as "
            "keras.optimizers.Adam(1e-3)."
        )
    for one in each_optimizer(optimizer):
        for option in _PER_STEP:
            value = getattr(one, option, None)
            if value:
                raise ValueError(
                    f"optimizer {one.name!r} has {option}={value!r}: leave it out; "
                    f"{REPLACEMENTS[option]}."
                )
    if not strategy.extended.variable_created_in_scope(optimizer.iterations.value):
        raise ValueError(
            f"optimizer {optimizer.name!r} was not created under this strategy: create it inside "
            "`with strategy.scope():`."
        )


def is_several(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether it is a MultiOptimizer, which Keras has since 3.13."""
    kind = getattr(keras.optimizers, "MultiOptimizer", None)
    return kind is not None and isinstance(optimizer, kind)


def each_optimizer(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return the optimizer and those inside a MultiOptimizer (all of them once it is built)."""
    return [optimizer, *(optimizer.optimizers if is_several(optimizer) else ())]


def learning_rate_of(optimizer: keras.optimizers.Optimizer) -> float:
    """Return the rate of the next update; of a MultiOptimizer, that of its first optimizer."""
    rated = optimizer.optimizers[0] if is_several(optimizer) else optimizer
    return float(tf.convert_to_tensor(rated.learning_rate))


# Layers that pass on their inputs, apart from an activation.
_PASSING = (
    keras.layers.Activation,
    keras.layers.Dropout,
    keras.layers.Flatten,
    keras.layers.Identity,
    keras.layers.Reshape,
)


def warn_if_logits(model: keras.Model, loss_fn: LossLike) -> None:
    """Warn, once per model, if a loss of probabilities gets outputs without an activation.

    The check needs a functional or Sequential model, which shows the layers of its outputs.
    """
    tensors = getattr(model, "outputs", None)
    if not tensors:
        return
    # A Sequential model has no structure of outputs.
    outputs = getattr(model, "output", None) if len(tensors) > 1 else tensors[0]
    if outputs is None or not isinstance(loss_fn, WeightedLoss):
        return
    for path in [term.path for term in loss_fn.terms if term.loss.probabilities]:
        try:
            layer = _linear_layer(at(outputs, path if len(tensors) > 1 else ()))
        except KeyError:  # a list of one, or outputs of other names, which the loss rejects
            continue
        if layer is None:
            continue
        loss = loss_fn.loss if not path else at(loss_fn.loss, path)
        name = loss if isinstance(loss, str) else getattr(loss, "name", loss)
        output = f"output {path_name(path)!r} of " if path else ""
        warn_once(
            f"{output}model {model.name!r} ends in layer {layer.name!r} without an activation, "
            f"which gives logits, and loss {name!r} takes probabilities: it clips them to 0 and 1 "
            "and hardly trains. Give the last layer activation='sigmoid' (or 'softmax'), or use "
            f"keras.losses.{_class_name(loss)}(from_logits=True).",
            about=model,
            topic="logits",
        )


def _linear_layer(tensor: keras.KerasTensor) -> keras.layers.Layer | None:
    """Return the layer that computes an output without an activation, or None."""
    while True:
        history = getattr(tensor, "_keras_history", None)
        layer: keras.layers.Layer = getattr(history, "operation", None)
        if isinstance(layer, keras.Model) and getattr(layer, "outputs", None):
            if len(layer.outputs) != 1:
                return None
            tensor = layer.outputs[0]
            continue
        activation = getattr(layer, "activation", None)
        if activation is not None and activation is not keras.activations.linear:
            return None
        if not isinstance(layer, _PASSING):
            return layer if activation is not None else None
        (tensor,) = keras.tree.flatten(layer.input)


def _class_name(loss: LossLike) -> str:
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    for found, kind in vars(keras.losses).items():
        if isinstance(kind, type) and found.lower() == name.lower().replace("_", ""):
            return found
    return name
