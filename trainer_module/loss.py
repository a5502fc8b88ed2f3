"""A loss as the two sums of which a batch, however it was cut, has only one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import keras
import tensorflow as tf

from trainer_module.labels import align, same_shape, zero_where_unweighted
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

    Weights below 0 have no mean: "weighted_mean" then gives a denominator of NaN, and `TrainStep`
    treats the window as not finite; "mean" takes them. Where a weight is 0 any label will do.
    A window of weights that are all 0 is empty and updates nothing, except with "mean", which has
    rows to divide by: it is a step whose gradient is that of the regularisers alone.

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
        numerator = tf.reduce_sum(values * weights)
        if reduction == "mean":
            return LossSums(numerator, tf.reduce_sum(_mask_like(outputs, values)))
        return LossSums(numerator, _sum_of_weights(weights, given=sample_weight is not None))

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
        if isinstance(sample_weight, (Mapping, list, tuple)):
            raise ValueError(
                f"sample_weight is a {type(sample_weight).__name__}: several outputs share one sum "
                "of weights, so give one tensor of weights for all of them, or write a loss "
                "function that returns (numerator, denominator)."
            )
        total, weights = None, None
        for key in keys:
            _check_has(key, labels, "labels")
            _check_has(key, outputs, "the model's outputs")
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
        if reduction == "mean":
            return LossSums(total, tf.reduce_sum(tf.ones_like(weights)))
        return LossSums(total, _sum_of_weights(weights, given=sample_weight is not None))

    return sums


def _check_has(key: Any, structure: Any, what: str) -> None:
    is_named = isinstance(structure, Mapping)
    if not is_named and not isinstance(structure, (list, tuple)):
        raise ValueError(f"the loss has an output {key!r}, but {what} are not a dict or a list.")
    have = list(structure) if is_named else list(range(len(structure)))
    if key not in have:
        raise ValueError(
            f"the loss has an output {key!r}, but {what} have {', '.join(map(repr, have))}: the "
            "losses, the labels and the model's outputs need the same keys."
        )


def _sum_of_weights(weights: tf.Tensor, *, given: bool) -> tf.Tensor:
    """Returns Σ w_i; NaN if some w_i < 0, for which w_i / Σ w_i would be no share of a mean."""
    total = tf.reduce_sum(weights)
    if not given:
        return total
    nan = tf.constant(float("nan"), total.dtype)
    return tf.where(tf.reduce_any(weights < 0), nan, total)


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
        return _aligned(loss.call, strict=_compares_values(type(loss)))
    if not callable(loss):
        raise ValueError(f"loss={loss!r}: give a Keras loss, its name, or a function.")
    return _aligned(loss, strict=_compares_values(loss))


def _compares_values(loss: Any) -> bool:
    """Returns whether it is one of Keras' losses of labels that are shaped like the outputs."""
    if not getattr(loss, "__module__", "").startswith("keras."):
        return False
    name = getattr(loss, "__name__", "").lower()
    return not any(other in name for other in ("sparse", "ctc", "circle"))


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


def _aligned(values_of: Callable[[Any, Any], Any], *, strict: bool) -> Callable[[Any, Any], Any]:
    """Gives labels the outputs' rank first, and with `strict` insists on their shape."""

    def call(labels: Any, outputs: Any) -> tf.Tensor:
        if isinstance(outputs, (Mapping, list, tuple)):
            keys = list(outputs) if isinstance(outputs, Mapping) else list(range(len(outputs)))
            raise ValueError(
                f"the model has several outputs, {', '.join(map(repr, keys))}: give one loss for "
                "each, as weighted_loss({output: loss, ...})."
            )
        labels, outputs = tf.convert_to_tensor(labels), tf.convert_to_tensor(outputs)
        if outputs.dtype in (tf.float16, tf.bfloat16):
            outputs = tf.cast(outputs, tf.float32)
        labels, outputs = align(labels, outputs)
        if strict:
            labels, outputs = same_shape(labels, outputs)
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
    if labels is None:
        raise ValueError(
            "the batch has no labels, and the loss compares them with the outputs: give (features, "
            "labels), or a loss function (labels, outputs, sample_weight) -> (numerator, "
            "denominator) that looks at the outputs alone."
        )
    labels = zero_where_unweighted(labels, sample_weight)
    labels = zero_where_unweighted(labels, _mask_of(outputs))
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
    try:
        inspect.signature(loss).bind("labels", "outputs", "sample_weight")
    except TypeError:
        raise ValueError(
            f"loss function {getattr(loss, '__name__', loss)!r} does not take (labels, outputs, "
            "sample_weight): give weighted_loss(...) of it if it returns one loss per row, or "
            "return (numerator, denominator) from those three."
        ) from None
    function: Any = loss
    return function


def loss_sums(loss_fn: LossFunction, labels: Any, outputs: Any, sample_weight: Any) -> LossSums:
    """Returns the two sums of a loss function that somebody else may have written.

    Raises:
        ValueError: It returned something else than two scalars of at least 32 bits.
    """
    found = loss_fn(labels, outputs, sample_weight)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise ValueError(
            f"the loss function returned {found!r}: return (numerator, denominator), the weighted "
            "sum of the rows' losses and the sum of their weights; or give weighted_loss(...) of "
            "a function (labels, outputs) -> one loss per row."
        )
    sums = LossSums(*map(tf.convert_to_tensor, found))
    for name, value in zip(sums._fields, sums, strict=True):
        if value.shape.rank != 0:
            raise ValueError(
                f"the loss function's {name} has shape {value.shape}: return the sum over all "
                "rows, a scalar (tf.reduce_sum)."
            )
        if value.dtype in (tf.float16, tf.bfloat16):
            raise ValueError(
                f"the loss function's {name} is {value.dtype.name}, which cannot count rows: cast "
                "labels and outputs to float32 before summing."
            )
    return sums
