"""A loss as the two sums of which a batch, however it was cut, has only one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import keras
import tensorflow as tf

from trainer_module.names import nearest

Reduction = Literal["weighted_mean", "mean"]


class LossSums(NamedTuple):
    """Σ w_i l_i and Σ w_i of some rows: both add up over micro-batches and replicas."""

    numerator: tf.Tensor
    denominator: tf.Tensor


LossFunction = Callable[..., tuple[tf.Tensor, tf.Tensor]]


def weighted_loss(
    loss: Any,
    *,
    loss_weights: Any = None,
    reduction: Reduction = "weighted_mean",
) -> LossFunction:
    """Returns a loss function `(labels, outputs, sample_weight=None) -> (numerator, denominator)`.

    Args:
        loss: A Keras loss, its name, a function `(labels, outputs) -> losses per row`, or a dict
            or list of these with the structure of the model's outputs.
        loss_weights: For several outputs, the factor of each, same structure; 1 by default.
        reduction: "weighted_mean" divides by Σ w_i; "mean" by the number of values whatever their
            weights, which is what Keras calls "sum_over_batch_size".

    Losses per token (`[batch, time]`) are summed over tokens: the denominator counts tokens, those
    that the model's mask leaves out excepted. Per-row weights `[batch]` hold for each token.

    Raises:
        ValueError: An unknown name, a Keras loss with reduction="sum", an unknown reduction.
    """
    if reduction not in ("weighted_mean", "mean"):
        raise ValueError(f"reduction={reduction!r}: use 'weighted_mean' or 'mean'.")
    if isinstance(loss, (Mapping, list, tuple)):
        return _several_outputs(loss, loss_weights, reduction)
    if loss_weights is not None:
        raise ValueError(f"loss_weights={loss_weights!r} needs one loss per output, got {loss!r}.")
    values_of = _values_function(loss)

    def sums(labels: Any, outputs: Any, sample_weight: Any = None) -> LossSums:
        values, weights = _values_and_weights(values_of, labels, outputs, sample_weight)
        counted = weights if reduction == "weighted_mean" else _mask_like(outputs, values)
        return LossSums(tf.reduce_sum(values * weights), tf.reduce_sum(counted))

    return sums


def _several_outputs(losses: Any, loss_weights: Any, reduction: Reduction) -> LossFunction:
    keys = list(losses) if isinstance(losses, Mapping) else range(len(losses))
    if loss_weights is None:
        factors = dict.fromkeys(keys, 1.0)
    else:
        named = loss_weights if isinstance(loss_weights, Mapping) else dict(enumerate(loss_weights))
        if set(named) != set(keys):
            raise ValueError(
                f"loss_weights has {sorted(map(str, named))}, the losses have "
                f"{sorted(map(str, keys))}: give one weight per output."
            )
        factors = {key: float(named[key]) for key in keys}
    functions = {key: _values_function(losses[key]) for key in keys}

    def sums(labels: Any, outputs: Any, sample_weight: Any = None) -> LossSums:
        total, weights = None, None
        for key in keys:
            values, weights = _values_and_weights(
                functions[key], labels[key], outputs[key], sample_weight
            )
            if values.shape.rank != 1:
                raise ValueError(
                    f"the loss of output {key!r} has shape {values.shape}: several outputs share "
                    "one sum of weights, so each needs one loss per row; average its other axes, "
                    "or write a loss function that returns (numerator, denominator)."
                )
            term = factors[key] * tf.reduce_sum(values * weights)
            total = term if total is None else total + term
        assert total is not None
        assert weights is not None
        counted = weights if reduction == "weighted_mean" else tf.ones_like(weights)
        return LossSums(total, tf.reduce_sum(counted))

    return sums


def _values_function(loss: Any) -> Callable[[Any, Any], tf.Tensor]:
    """Returns `(labels, outputs) -> losses`, not reduced over rows."""
    if isinstance(loss, str):
        loss = _by_name(loss)
    if isinstance(loss, keras.losses.Loss):
        if loss.reduction == "sum":
            raise ValueError(
                f"loss {loss.name!r} has reduction='sum', whose gradient grows with the batch: "
                "use the default reduction; the sums over the window are taken by the trainer."
            )
        strict = type(loss).__module__.startswith("keras.") and "sparse" not in loss.name
        return _same_rank(loss.call, strict=strict)
    if not callable(loss):
        raise ValueError(f"loss={loss!r}: give a Keras loss, its name, or a function.")
    module, name = getattr(loss, "__module__", ""), getattr(loss, "__name__", "")
    return _same_rank(loss, strict=module.startswith("keras.") and "sparse" not in name)


def loss_names() -> list[str]:
    """Returns the names of Keras' own losses."""
    names = (name for name in dir(keras.losses) if not name.startswith("_"))
    return [n for n in names if n not in ("get", "serialize", "deserialize", "Loss")]


def _by_name(name: str) -> Any:
    try:
        found = keras.losses.get(name)
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"loss={name!r} is not a Keras loss; {nearest(name, loss_names())}")
    return found() if inspect.isclass(found) else found


def _same_rank(values_of: Callable[[Any, Any], Any], *, strict: bool) -> Callable[[Any, Any], Any]:
    """Gives labels the outputs' rank first: [batch] against [batch, 1] would broadcast."""

    def call(labels: Any, outputs: Any) -> tf.Tensor:
        labels, outputs = tf.convert_to_tensor(labels), tf.convert_to_tensor(outputs)
        if outputs.dtype in (tf.float16, tf.bfloat16):
            outputs = tf.cast(outputs, tf.float32)
        label_rank, output_rank = labels.shape.rank, outputs.shape.rank
        if label_rank is not None and output_rank is not None:
            if label_rank == output_rank - 1 and outputs.shape[-1] == 1:
                labels = labels[..., tf.newaxis]
            elif label_rank == output_rank + 1 and labels.shape[-1] == 1:
                labels = tf.squeeze(labels, -1)
        if strict and not labels.shape[1:].is_compatible_with(outputs.shape[1:]):
            raise ValueError(
                f"labels of shape {labels.shape} do not fit outputs of shape {outputs.shape}: the "
                "loss would broadcast one against the other. Check the last layer's units, or use "
                "sparse_categorical_crossentropy for integer classes."
            )
        return tf.convert_to_tensor(values_of(labels, outputs))

    return call


def _mask_of(outputs: Any) -> Any:
    return getattr(outputs, "_keras_mask", None)


def _mask_like(outputs: Any, values: tf.Tensor) -> tf.Tensor:
    mask = _mask_of(outputs)
    if mask is None:
        return tf.ones_like(values)
    return _broadcast(tf.cast(mask, values.dtype), values)


def _values_and_weights(
    values_of: Callable[[Any, Any], tf.Tensor], labels: Any, outputs: Any, sample_weight: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    values = values_of(labels, outputs)
    if values.shape.rank == 0:
        raise ValueError(
            "the loss function returned one number for the whole batch: return one loss per row "
            "([batch] or [batch, time]), or a pair (numerator, denominator) without weighted_loss."
        )
    weights = _mask_like(outputs, values)
    if sample_weight is not None:
        weights *= _broadcast(tf.cast(sample_weight, values.dtype), values)
    # A masked or zero-weight value that is not finite must not reach the sum as 0 * inf.
    return tf.where(weights == 0, tf.zeros_like(values), values), weights


def _broadcast(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Aligns weights with values from the left: [batch] holds for every token of a row."""
    rank = values.shape.rank
    assert rank is not None
    assert weights.shape.rank is not None
    while weights.shape.rank > rank and weights.shape[-1] == 1:
        weights = tf.squeeze(weights, -1)
    if weights.shape.rank > rank:
        raise ValueError(
            f"weights of shape {weights.shape} have more axes than losses of shape {values.shape}: "
            "give one weight per row, or one per value of the loss."
        )
    while weights.shape.rank < rank:
        weights = weights[..., tf.newaxis]
    return tf.broadcast_to(weights, tf.shape(values))


def as_loss_function(loss: Any) -> LossFunction:
    """Returns `loss` itself when it already is a function of three arguments, else its sums.

    Raises:
        ValueError: See `weighted_loss`.
    """
    if isinstance(loss, (str, keras.losses.Loss, Mapping, Sequence)):
        return weighted_loss(loss)
    if not callable(loss):
        raise ValueError(
            f"loss_fn={loss!r}: give a function (labels, outputs, sample_weight) -> "
            "(numerator, denominator), a Keras loss, or its name."
        )
    if getattr(loss, "__module__", "").startswith("keras."):
        return weighted_loss(loss)
    function: Any = loss
    return function
