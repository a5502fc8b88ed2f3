"""Hash everything that affects how much memory a step takes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import tensorflow as tf

from trainer_module.common.code_fingerprint import code_digests
from trainer_module.common.fingerprint import to_fingerprint
from trainer_module.common.tensors import LossLike
from trainer_module.losses.weighted_loss import WeightedLoss
from trainer_module.memory.probe import ProbeRequest
from trainer_module.stages.recompute import is_recomputed

# TensorFlow and XLA read them, and they may change the memory that an operation takes.
_ENVIRONMENT = (
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "TF_GPU_ALLOCATOR",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTRAOP_THREADS",
)
_LIBRARIES = ("keras", "tensorflow", "numpy")
# Part of the model, the result of the search, or values of rows: none changes the result.
_LEFT_OUT = ("arguments", "batch", "micro_batch_size", "window_rows", "limit_bytes")


def request_hash(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: LossLike,
    request: ProbeRequest,
    build: Callable[..., object],
) -> str:
    """Return the hash under which a measured size is stored.

    Steps with the same hash need the same memory. The hash ignores values of weights and rows,
    class weights, the learning rate and the micro-batch size.

    Args:
        model: Hashed by architecture, variables, and the code of the user's layers.
        optimizer: Hashed by class and options.
        loss: As in `TrainStep`; hashed by options and code.
        request: Hashed by structure, shapes and dtypes of its rows, devices and options.
        build: The function that made the model; hashed by its module's code.
    """
    layers = list(model._flatten_layers())
    losses = loss.loss if isinstance(loss, WeightedLoss) else loss
    parts = (build, *layers, *tf.nest.flatten(losses))
    asked = {
        field.name: to_fingerprint(getattr(request, field.name))
        for field in dataclasses.fields(request)
        if field.name not in _LEFT_OUT
    }
    hashed = {
        "model": _architecture(model, layers),
        "variables": [[list(v.shape), v.dtype, v.trainable] for v in model.variables],
        "recomputed": [is_recomputed(layer) for layer in layers],
        "code": _code({getattr(part, "__module__", None) or "" for part in parts}),
        "optimizer": {k: v for k, v in to_fingerprint(optimizer).items() if k != "learning_rate"},
        "loss": _loss(loss),
        "request": asked,
        "batch": str(tf.nest.map_structure(lambda a: (a.shape[1:], a.dtype.str), request.batch)),
        "devices": _devices(request.devices),
        "software": [platform.python_version(), *(sys.modules[n].__version__ for n in _LIBRARIES)],
        "trainer_module": [hashlib.sha256(f.read_bytes()).hexdigest() for f in own_sources()],
        "environment": {name: os.environ.get(name) for name in _ENVIRONMENT},
    }
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, default=str).encode()).hexdigest()


def own_sources() -> list[Path]:
    """Return the files of this package: a change in any of them may change a step's memory."""
    return sorted(Path(__file__).parents[1].rglob("*.py"))


def _architecture(model: keras.Model, layers: list[keras.Layer]) -> object:
    """Return the model's configuration with placeholders for names, which differ per process."""
    try:
        config = json.loads(model.to_json())
    except (NotImplementedError, TypeError, ValueError):
        return None  # a subclassed model without a configuration: variables and code identify it
    places = {layer.name: f"layer {place}" for place, layer in enumerate(layers)}

    def renamed(node: object) -> object:
        if isinstance(node, dict):
            return {key: renamed(value) for key, value in node.items()}
        if isinstance(node, list):
            return [renamed(value) for value in node]
        return places.get(node, node) if isinstance(node, str) else node

    return renamed(config)


def _code(modules: set[str]) -> dict[str, str]:
    """Return digests of the user's modules and of the modules they import."""
    without = (*_LIBRARIES, "trainer_module")
    found: dict[str, str] = {}
    for name in sorted(modules):
        if name and name.partition(".")[0] not in without:
            try:
                found |= code_digests([name], without=without)
            except (ModuleNotFoundError, SyntaxError):  # created at run time, without source
                found[name] = ""
    return found


def _loss(loss: LossLike) -> object:
    if isinstance(loss, WeightedLoss):  # values of class weights take no memory
        parts = (loss.loss, loss.loss_weights, loss.reduction, bool(loss.class_weight))
        return to_fingerprint(parts)
    return to_fingerprint(loss)


def _devices(devices: tuple[str, ...]) -> object:
    if devices[0].startswith("CPU"):
        threads = tf.config.threading.get_intra_op_parallelism_threads()
        return ["CPU", len(devices), platform.machine(), os.cpu_count(), threads]
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details
    return [details(gpus[int(device.rpartition(":")[2])]) for device in devices]
