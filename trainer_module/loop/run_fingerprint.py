"""The fingerprint of a training: all values that affect its result."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from trainer_module.common.differences import differences, flat, summarize_differences
from trainer_module.common.fingerprint import to_fingerprint
from trainer_module.common.tensors import Json
from trainer_module.data.dataset_steps import dataset_fingerprint
from trainer_module.data.epoch_data import BatchSource
from trainer_module.data.in_memory import as_arrays
from trainer_module.loop.callback import Callback
from trainer_module.loop.evaluation import Evaluate, Evaluation
from trainer_module.options.run_options import LoopOptions
from trainer_module.step.reports import Step

# Numbers of the schedules of a learning rate and of a pruning that programs derive from the length
# of the run.
_FOLLOW_LENGTH = re.compile(
    r"optimizer\..*(decay_steps|total_steps)"
    r"|model\..*\.(begin_step|end_step|every)"
    r"|callbacks\.\d+ (Prune\.schedules|EarlyStopping\.from_step)"
)

# JSON values by name.
Fingerprint = dict[str, Json]


def program_fingerprint(
    train_step: Step,
    data: BatchSource,
    options: LoopOptions,
    evaluate: Evaluate | None,
    callbacks: Sequence[Callback],
) -> Fingerprint:
    """Return the values that affect the result of a training, as JSON values by name.

    Of the options, it includes those whose field is marked as affecting the result.
    """
    deciding = [each for each in callbacks if each.facts()]
    return {
        "model": _model_fingerprint(train_step.model),
        "optimizer": to_fingerprint(train_step.optimizer),
        "loss": to_fingerprint(train_step.loss_fn),
        **train_step.options.fingerprint(),
        **options.fingerprint(),
        "callbacks": {
            f"{place} {getattr(each, 'name', type(each).__name__)}": to_fingerprint(each.facts())
            for place, each in enumerate(deciding)
        },
        **_data_facts(train_step, data, evaluate),
    }


def _model_fingerprint(model: keras.Model) -> Fingerprint:
    """Return class, code and configuration of each layer, by its name in a new process."""
    names = _layer_names(model)
    facts: Fingerprint = {}
    for layer in model._flatten_layers(include_self=True, recursive=True):
        name = names.get(layer.name, str(layer.name))
        if isinstance(layer, keras.layers.InputLayer):
            continue
        facts[name if layer is not model else "itself"] = _renamed(_layer(layer), names)
    return facts


def _layer_names(model: keras.Model) -> dict[str, str]:
    """Return a dict from each layer's name to its name in a process with no other model.

    Keras numbers unnamed layers over all models of a process: the `dense` of a first model is the
    `dense_2` of a second, equal one.
    """
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for layer in model._flatten_layers(include_self=True, recursive=True):
        kind = _snake_case(type(layer).__name__)
        if layer.name in names or not re.fullmatch(rf"{kind}(_\d+)?", layer.name):
            continue
        names[layer.name] = f"{kind}_{counts[kind]}" if counts[kind] else kind
        counts[kind] += 1
    return names


def _snake_case(name: str) -> str:
    """Return the default layer name that Keras derives from a class name."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def check_fingerprint(
    there: Mapping[str, Json], here: Mapping[str, Json], *, path: str, longer: bool
) -> list[str]:
    """Check that a checkpoint belongs to this run."""
    was, now = flat(there), flat(here)
    grown = [name for name in now if longer and _FOLLOW_LENGTH.fullmatch(name)]
    found = differences(
        {name: value for name, value in was.items() if name not in grown},
        {name: value for name, value in now.items() if name not in grown},
    )
    if found:
        raise ValueError(
            f"the checkpoint in {path} is of a run that was not the same as this one: "
            f"{summarize_differences(found)}. Give Checkpoints another folder to train this one "
            f"from its beginning, or delete {path} to do so there, or undo the change to continue."
        )
    return differences(
        {name: was[name] for name in grown if name in was},
        {name: now[name] for name in grown if name in was},
    )


def _data_facts(train_step: Step, data: BatchSource, evaluate: Evaluate | None) -> Fingerprint:
    """Return what identifies the data and the evaluation.

    Variables of the step are skipped: their values are restored from the checkpoint.
    """
    step = train_step
    restored = [*step.model.variables, *step.optimizer.variables, *step.state()]

    def facts_of(source: BatchSource) -> Json:
        if isinstance(source, tuple):
            return to_fingerprint([as_arrays(part) for part in source])
        if isinstance(source, tf.data.Dataset):
            return dataset_fingerprint(source, restored=restored)
        if not inspect.isfunction(source):
            return to_fingerprint(source)
        used = inspect.getclosurevars(source)  # of a function of the epoch's number
        held = {**used.globals, **used.nonlocals}.items()
        datasets = {name: facts_of(v) for name, v in held if isinstance(v, tf.data.Dataset)}
        return {"function": to_fingerprint(source), **datasets}

    facts: Fingerprint = {"data": facts_of(data), "evaluate": to_fingerprint(evaluate)}
    if isinstance(evaluate, Evaluation):
        held_out = evaluate.data_facts
        facts["evaluate"] = {
            "loss": to_fingerprint(evaluate.loss_fn),
            "metrics": {metric.name: to_fingerprint(metric) for metric in evaluate.metrics},
            "data": facts_of(evaluate.batches) if held_out is None else held_out,
        }
    return facts


def _layer(layer: keras.layers.Layer) -> Json:
    if isinstance(layer, keras.layers.Lambda):
        # The layer's configuration has the function's bytecode, with file and line number.
        return {"class": "Lambda", "function": to_fingerprint(layer.function)}
    facts = to_fingerprint(layer)
    if layer._layers and "layers" in facts:  # each inner layer has its own entry
        facts["layers"] = [_wiring(inner) for inner in facts["layers"]]
    for key in ("build_input_shape", "build_config"):
        facts.pop(key, None)
    return facts


def _wiring(layer: Json) -> Json:
    if not isinstance(layer, Mapping):
        return layer
    name = layer.get("config", {}).get("name")
    return [layer.get("class_name"), name, layer.get("inbound_nodes")]


def _renamed(node: Json, names: Mapping[str, str]) -> Json:
    if isinstance(node, Mapping):
        return {key: _renamed(value, names) for key, value in node.items() if key != "build_config"}
    if isinstance(node, list):
        return [_renamed(value, names) for value in node]
    return names.get(node, node) if isinstance(node, str) else node
