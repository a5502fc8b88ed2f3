"""What a step's memory depends on, as one key."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from trainer_module.memory.probe import ProbeRequest
from trainer_module.stages.recompute import is_recomputed
from trainer_module.window.loss import WeightedLoss

# Read by TensorFlow and XLA, and able to change how much memory an operation takes.
_ENVIRONMENT = (
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "TF_GPU_ALLOCATOR",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTRAOP_THREADS",
)
_LIBRARIES = ("keras", "tensorflow", "numpy")


def step_key(
    model: keras.Model,
    optimizer: Any,
    loss: Any,
    request: ProbeRequest,
    build: Callable[..., Any],
) -> str:
    """Returns a digest of all that decides how much memory a step takes.

    Two steps with the same key need the same memory: values of weights and rows and the learning
    rate do not enter, nor does the micro-batch size.

    Args:
        model: The model; its architecture, variables, and the code of its own layers.
        optimizer: Its class and options.
        loss: As `TrainStep` takes it.
        request: Example rows (their structure, shapes and dtypes), devices, rows and options.
        build: The function that made the model; its module's code.
    """
    layers = list(model._flatten_layers())
    batch = tf.nest.map_structure(lambda array: (array.shape[1:], array.dtype.str), request.batch)
    facts = {
        "model": _architecture(model, layers),
        "variables": [[list(v.shape), v.dtype, v.trainable] for v in model.variables],
        "recomputed": [is_recomputed(layer) for layer in layers],
        "code": sorted({_code_of(type(layer)) for layer in layers} | {_code_of(build)}),
        "optimizer": [type(optimizer).__name__, _without_rates(optimizer.get_config())],
        "loss": _described(loss),
        "batch": str(batch),
        "global_batch_rows": request.global_batch_rows,
        "devices": _device_facts(request.devices),
        "step_options": request.step_options,
        "keras_options": request.keras_options,
        "software": [platform.python_version(), *(sys.modules[n].__version__ for n in _LIBRARIES)],
        "trainer_module": _digest(*(file.read_bytes() for file in own_sources())),
        "environment": {name: os.environ.get(name) for name in _ENVIRONMENT},
    }
    return _digest(json.dumps(facts, sort_keys=True, default=str).encode())


def own_sources() -> list[Path]:
    """Returns the files of this package, of all rooms: any may change what a step holds."""
    return sorted(Path(__file__).parents[1].rglob("*.py"))


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _architecture(model: keras.Model, layers: list[Any]) -> Any:
    """The model's configuration, with layers by their place: Keras counts names up per process."""
    try:
        config = json.loads(model.to_json())
    except (NotImplementedError, TypeError, ValueError):
        return None  # a subclassed model without one: variables and code stand for it
    places = {layer.name: f"layer {place}" for place, layer in enumerate(layers)}

    def renamed(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: renamed(value) for key, value in node.items()}
        if isinstance(node, list):
            return [renamed(value) for value in node]
        return places.get(node, node) if isinstance(node, str) else node

    return renamed(config)


def _code_of(thing: Any) -> str:
    """A digest of the source behind a class or function; its name alone for a library's."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    if name.partition(".")[0] in _LIBRARIES:
        return name
    try:
        source = inspect.getsource(sys.modules[thing.__module__])
    except (KeyError, OSError, TypeError):
        return name
    return f"{name} {_digest(source.encode())}"


def _without_rates(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in ("learning_rate", "name")}


def _described(loss: Any) -> Any:
    """A loss as JSON: by name, configuration, or code with what a closure holds."""
    if isinstance(loss, keras.losses.Loss):
        return [_code_of(type(loss)), loss.get_config()]
    if isinstance(loss, WeightedLoss):
        return [
            _described(loss.loss),
            _described(loss.loss_weights),
            loss.reduction,
            bool(loss.class_weight),
        ]
    if isinstance(loss, Mapping):
        return {str(key): _described(value) for key, value in loss.items()}
    if isinstance(loss, (list, tuple)):
        return [_described(value) for value in loss]
    if inspect.isroutine(loss):
        cells = getattr(loss, "__closure__", None) or ()
        return [_code_of(loss), *(_described(cell.cell_contents) for cell in cells)]
    plain = loss is None or isinstance(loss, (str, int, float))
    return loss if plain else _code_of(type(loss))


def _device_facts(devices: tuple[str, ...]) -> Any:
    if devices[0].startswith("CPU"):
        threads = tf.config.threading.get_intra_op_parallelism_threads()
        return ["CPU", len(devices), platform.machine(), os.cpu_count(), threads]
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details
    return [details(gpus[int(device.rpartition(":")[2])]) for device in devices]
