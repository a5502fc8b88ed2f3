"""Check the arguments of functions that compute gradients."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer_module.checks.batch import check_batch
from trainer_module.checks.compiled import warn_compile_args_ignored
from trainer_module.checks.model import check_built, reject_custom_train_step
from trainer_module.common.tensors import LossLike, Tensors

_INT64 = range(-(2**63), 2**63)


def checked_batch(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors,
    *,
    by: str,
    random_position: Sequence[Any] = (),
) -> tuple[Tensors, Tensors, Tensors]:
    """Return features, labels and weights as tensors.

    Raises:
        ValueError: The model is not built or overrides `compute_loss`, tensors differ in their
            number of rows, features do not fit the model, or random_position is not a sequence of
            integers.
    """
    check_built(model)
    check_batch(features, labels, sample_weight)
    reject_custom_train_step(model, ("compute_loss",), by=by)
    warn_compile_args_ignored(model, loss_fn)
    _check_random_position(random_position)
    features = checked_features(model, features)
    weights = to_tensors(sample_weight, "sample_weight")
    for tensor in tf.nest.flatten(weights):
        if tensor is not None and not (
            tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool
        ):
            raise ValueError(
                f"sample_weight has dtype {tensor.dtype.name}: give numbers, one for each row."
            )
    return features, to_tensors(labels, "labels"), weights


def checked_features(model: keras.Model, features: Tensors) -> Tensors:
    """Return the features as tensors, after comparing them with the inputs of the model.

    A subclassed model does not declare its inputs, so that only the types are checked.

    Raises:
        ValueError: The model is not built, tensors differ in their number of rows, there is no
            tensor, or its shape or dtype does not fit.
    """
    check_built(model)
    features = to_tensors(features, "features")
    check_batch(features, None)
    if all(tensor is None for tensor in tf.nest.flatten(features)):
        raise ValueError(f"features={features!r} hold no tensor: give a tensor [rows, ...].")
    for name, tensor, expected in _with_inputs(model, features):
        if tensor.dtype.is_complex:
            raise ValueError(
                f"{name} has dtype {tensor.dtype.name}, of which Keras would drop the imaginary "
                "part: give the real and the imaginary part as two columns."
            )
        if expected is not None:
            _check_input(name, tensor, expected)
    return features


def to_tensors(data: Tensors, name: str) -> Tensors:
    """Return the structure with each array as a tensor; None stays.

    Raises:
        ValueError: An array has no dtype of TensorFlow, such as `object`.
    """

    def to_tensor(value: Any) -> tf.Tensor | None:
        try:
            return None if value is None else tf.convert_to_tensor(value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} hold a {type(value).__name__} of dtype {getattr(value, 'dtype', None)}, "
                f"which is no tensor ({error}): give arrays of numbers."
            ) from error

    return tf.nest.map_structure(to_tensor, data)


def check_function(name: str, value: Any, *, example: str) -> None:
    """Raise ValueError unless the value is None or a function."""
    if value is not None and not callable(value):
        raise ValueError(f"{name}={value!r}: use a function, such as {example}, or None.")


def _check_random_position(position: Any) -> None:
    """Raise ValueError unless the value is a sequence of integers, or of tensors of them."""
    is_sequence = isinstance(position, Sequence) and not isinstance(position, str)
    if not is_sequence or not all(_is_index(each) for each in position):
        raise ValueError(
            f"random_position={position!r}: use a sequence of whole numbers, such as (step,)."
        )


def _is_index(value: Any) -> bool:
    if isinstance(value, numbers.Integral):
        return not isinstance(value, bool) and int(value) in _INT64
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return shape is not None and len(shape) == 0 and tf.as_dtype(dtype).is_integer


def _with_inputs(model: Any, features: Tensors) -> list[tuple[str, tf.Tensor, Any]]:
    """Return (name, tensor, the model's input or None) of each tensor of the features."""
    inputs = getattr(model, "inputs", None) or []
    if isinstance(features, Mapping):
        known = {each.name: each for each in inputs}
        pairs = [(f"features[{n!r}]", part, known.get(n)) for n, part in features.items()]
    else:
        flat = tf.nest.flatten(features)
        if inputs and len(flat) != len(inputs):
            raise ValueError(
                f"features hold {len(flat)} tensors, and the model has the inputs "
                f"{[each.name for each in inputs]}: give one tensor for each."
            )
        pairs = [
            ("features", t, e) for t, e in zip(flat, inputs or [None] * len(flat), strict=True)
        ]
    return [
        (name, tensor, expected)
        for name, part, expected in pairs
        for tensor in tf.nest.flatten(part)
        if tensor is not None
    ]


def _check_input(name: str, tensor: tf.Tensor, expected: Any) -> None:
    shape, wanted = tensor.shape[1:].as_list(), list(expected.shape[1:])
    # Keras adds or removes a last axis of 1.
    if len(shape) == len(wanted) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    elif len(shape) == len(wanted) - 1 and wanted[-1] == 1:
        shape = [*shape, 1]
    fits = len(shape) == len(wanted) and all(
        a is None or b is None or a == b for a, b in zip(shape, wanted, strict=True)
    )
    is_text = [tf.as_dtype(each.dtype) == tf.string for each in (tensor, expected)]
    if not fits or is_text[0] != is_text[1]:
        raise ValueError(
            f"{name} has shape {tensor.shape} and dtype {tensor.dtype.name}, and the model's input "
            f"{expected.name!r} has {tuple(expected.shape)} and {expected.dtype}: give features of "
            "that shape and type."
        )
