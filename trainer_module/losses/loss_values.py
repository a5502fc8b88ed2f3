"""Compute the losses of one output: a value per row or token, its weight and its mask.

Labels are aligned with the outputs, and those without weight are masked.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import LossLike, Tensors

# Labels and outputs `[rows, ...]` -> losses `[rows, ...]`.
_LabelsToValues = Callable[[Tensors, Tensors], Tensors]


class Values(NamedTuple):
    """Losses of one output; all tensors have the same shape `[rows, ...]`.

    Attributes:
        values: l_i, 0 where the weight is 0.
        weights: w_i, 0 for masked values.
        counted: 0 for masked values, else 1; None without a mask.
    """

    values: tf.Tensor
    weights: tf.Tensor
    counted: tf.Tensor | None


@dataclasses.dataclass(frozen=True)
class OutputLoss:
    """The loss function `(labels, outputs) -> values` of one output, and the labels it expects.

    Attributes:
        call: Function of labels and outputs that is not reduced over rows.
        name: Name of the function or class.
        like_outputs: Whether labels need the shape of the outputs, because the loss would broadcast
            other shapes.
        classes: "checked" or "unchecked" if labels are class numbers, one per vector of outputs;
            "checked" if the loss itself rejects numbers without an output. None for other labels.
        like_keras: Whether the loss is custom, not from Keras. It then gets labels in the dtype of
            the outputs, or in `dtype` if that is wider, as `keras.Loss.__call__` passes them.
        dtype: Dtype of a Keras loss; None for a function.
        ignore_class: The label that the loss masks, or None.
        probabilities: Whether the loss expects outputs that are probabilities, not logits.
    """

    call: _LabelsToValues
    name: str
    like_outputs: bool = False
    classes: Literal["checked", "unchecked"] | None = None
    like_keras: bool = False
    dtype: str | None = None
    ignore_class: int | None = None
    probabilities: bool = False


def output_loss(loss: LossLike) -> OutputLoss:
    """Return the `OutputLoss` of a name, a Keras loss or a function `(labels, outputs)`.

    Raises:
        ValueError: The name is unknown, the Keras loss has reduction="sum", or the argument is none
            of these.
    """
    if isinstance(loss, str):
        loss = _by_name(loss)
    if not isinstance(loss, keras.losses.Loss):
        if not callable(loss):
            raise ValueError(f"loss={loss!r}: give a Keras loss, its name, or a function.")
        return _describe(loss, loss)
    if loss.reduction == "sum":
        raise ValueError(
            f"loss {loss.name!r} has reduction='sum', whose gradient grows with the batch: use the "
            "default reduction; the sums over the window are taken by the trainer."
        )
    # Keras wraps functions in a loss class; look at the function, which may not be from Keras.
    described = _describe(loss.call, getattr(loss, "fn", None) or type(loss))
    ignored = getattr(loss, "ignore_class", None)
    return dataclasses.replace(
        described,
        dtype=loss.dtype,
        ignore_class=ignored,
        probabilities=described.probabilities and not getattr(loss, "from_logits", False),
    )


def values_of(
    loss: OutputLoss, labels: Tensors, outputs: Tensors, sample_weight: Tensors
) -> Values:
    """Return the losses of one output with their weights and mask.

    Raises:
        ValueError: Labels are missing, labels or weights do not fit, or the loss returned one
            number for the whole batch.
    """
    if labels is None:
        raise ValueError(
            "the batch has no labels, and the loss compares them with the outputs: give (features, "
            "labels), or a loss function (labels, outputs, sample_weight) -> (numerator, "
            "denominator) that looks at the outputs alone."
        )
    for weights in (sample_weight, mask_of(outputs)):
        labels = zero_where_unweighted(labels, weights, but=loss.ignore_class)
    values, mask_of_values = _call_loss(loss, labels, outputs)
    if values.shape.rank == 0:
        raise ValueError(
            f"the loss function {loss.name!r} returned one number for the whole batch: return one "
            "loss per row ([batch] or [batch, time]), as Dice(axis=-1) of Keras does, or a pair "
            "(numerator, denominator) without weighted_loss."
        )
    # Keras sets masks on outputs (Embedding(mask_zero=True)) and on losses (ignore_class).
    counted = None
    for mask in (mask_of(outputs), mask_of_values):
        if mask is None:
            continue
        mask = _like_values(tf.cast(mask, values.dtype), values)
        counted = mask if counted is None else counted * mask
    weights = tf.ones_like(values) if counted is None else counted
    if sample_weight is not None:
        weights *= _like_values(tf.cast(sample_weight, values.dtype), values)
    # A masked or zero-weight value that is not finite would make the sum NaN (0 * inf).
    return Values(tf.where(weights == 0, tf.zeros_like(values), values), weights, counted)


def class_weights(
    loss: OutputLoss, labels: Tensors, sample_weight: Tensors, weights: Mapping[int, float]
) -> tf.Tensor:
    """Return class weights times sample weights, as `class_weight` of `fit` in Keras."""
    labels = tf.convert_to_tensor(labels)
    if labels.shape.rank is not None and labels.shape.rank > 1:
        if labels.shape[-1] == 1:
            labels = tf.squeeze(labels, -1)
        elif not loss.classes:
            labels = tf.argmax(labels, -1)
    if labels.dtype.is_floating:
        labels = tf.round(labels)
    classes = tf.cast(labels, tf.int64)
    most = max(weights)
    table = [float(weights.get(number, 1.0)) for number in range(most + 1)] + [1.0]
    place = tf.where(tf.logical_and(classes >= 0, classes <= most), classes, most + 1)
    found = tf.gather(tf.constant(table, keras.config.floatx()), place)
    if sample_weight is None:
        return found
    return found * _like_values(tf.cast(sample_weight, found.dtype), found)


def mask_of(tensor: Tensors) -> tf.Tensor | None:
    """Return the Keras mask of a tensor, or None."""
    return getattr(tensor, "_keras_mask", None)


def _like_values(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Broadcast weights to the shape of values, with axes aligned from the left.

    A weight `[rows]` applies to every token of its row.
    """
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


# Names that keras.losses.get accepts and dir(keras.losses) does not list.
_ABBREVIATIONS = ("bce", "kld", "mae", "mape", "mse", "msle")


def _loss_names() -> list[str]:
    """Return the names of the losses of Keras, including abbreviations."""
    names = (name for name in dir(keras.losses) if not name.startswith("_"))
    own = [n for n in names if n not in ("get", "serialize", "deserialize", "Loss")]
    return [*own, *_ABBREVIATIONS]


def _by_name(name: str) -> LossLike:
    try:
        found = keras.losses.get(name)
    except ValueError:  # Keras does not look up all of its losses
        found = getattr(keras.losses, name) if name in _loss_names() else None
    if found is None:
        raise ValueError(f"loss={name!r} is not a Keras loss; {nearest(name, _loss_names())}")
    return found() if inspect.isclass(found) else found


def _describe(call: _LabelsToValues, owner: object) -> OutputLoss:
    title = getattr(owner, "__name__", type(owner).__name__)
    if not getattr(owner, "__module__", "").startswith("keras."):
        return OutputLoss(call, title, like_keras=True)
    name = title.lower().replace("_", "")
    if name == "circle":
        raise ValueError(
            f"loss {title!r} compares the rows of a batch with each other, so it would depend on "
            "micro_batch_size: use a loss of each row, or train with keras.Model.fit."
        )
    needed = [p for p in inspect.signature(call).parameters.values() if p.default is p.empty]
    if len(needed) > 2 and owner is call:
        raise ValueError(
            f"loss {title!r} needs {needed[2].name}: give an object of its class in keras.losses."
        )
    if name == "sparsecategoricalcrossentropy":
        return OutputLoss(call, title, classes="checked", probabilities=True)
    if name == "categoricalgeneralizedcrossentropy":
        return OutputLoss(call, title, classes="unchecked", probabilities=True)
    return OutputLoss(
        call,
        title,
        like_outputs=name != "ctc",
        probabilities="crossentropy" in name
        or name in ("kldivergence", "kullbackleiblerdivergence"),
    )


def _call_loss(
    loss: OutputLoss, labels: Tensors, outputs: Tensors
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Call a loss with labels of the rank, shape and dtype that it expects."""
    labels, outputs = tf.convert_to_tensor(labels), tf.convert_to_tensor(outputs)
    if outputs.dtype in (tf.float16, tf.bfloat16):
        outputs = tf.cast(outputs, tf.float32)
    labels, outputs = _align(labels, outputs)
    if loss.classes and labels.shape.rank == outputs.shape.rank and labels.shape[-1] == 1:
        labels = tf.squeeze(labels, -1)
    if loss.like_keras:
        if loss.dtype is not None and tf.as_dtype(loss.dtype).size > outputs.dtype.size:
            outputs = tf.cast(outputs, loss.dtype)
        if labels.dtype != tf.string:
            labels = tf.cast(labels, outputs.dtype)
    if loss.like_outputs:
        labels, outputs = _same_shape(labels, outputs)
    found = loss.call(labels, outputs)
    if isinstance(found, (tuple, list)):
        raise ValueError(
            f"the loss function of (labels, outputs) returned {len(found)} things: return one loss "
            "per row, or take (labels, outputs, sample_weight) and return (numerator, denominator)."
        )
    values = tf.convert_to_tensor(found)
    return _nan_for_no_class(loss, labels, outputs, values), mask_of(values)


def _nan_for_no_class(
    loss: OutputLoss, labels: tf.Tensor, outputs: tf.Tensor, values: tf.Tensor
) -> tf.Tensor:
    """Return losses with NaN for labels without a class, which some kernels map to a class."""
    if labels.shape.rank != values.shape.rank:
        return values
    if loss.classes == "unchecked":
        known = tf.logical_and(labels >= 0, labels < tf.cast(tf.shape(outputs)[-1], labels.dtype))
    elif loss.classes == "checked" and labels.dtype.is_floating:
        known = tf.logical_not(tf.math.is_nan(labels))  # XLA converts NaN to class 0
    else:
        return values
    return tf.where(known, values, tf.constant(float("nan"), values.dtype))


def _align(labels: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return labels and outputs of the same rank, if labels only lack or have a last axis of 1.

    Otherwise labels `[batch]` and outputs `[batch, 1]` would broadcast.
    """
    ranks = labels.shape.rank, outputs.shape.rank
    if ranks[0] is None or ranks[1] is None:
        raise ValueError(
            f"labels of shape {labels.shape} and outputs of shape {outputs.shape}: a rank is "
            "unknown. Say it in the input pipeline, such as tf.ensure_shape(labels, [None, 1])."
        )
    if ranks[0] == ranks[1] - 1 and outputs.shape[-1] == 1:
        labels = labels[..., tf.newaxis]
    elif ranks[0] == ranks[1] + 1 and labels.shape[-1] == 1:
        labels = tf.squeeze(labels, -1)
    return labels, outputs


def _same_shape(labels: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return labels and outputs of the same shape, for a loss that compares them elementwise."""
    if labels.dtype == tf.string:
        raise ValueError(
            "labels are strings: give numbers, such as the ids that keras.layers.StringLookup "
            "gives classes in the input pipeline."
        )
    if not labels.shape[1:].is_compatible_with(outputs.shape[1:]):
        raise ValueError(
            f"labels of shape {labels.shape} do not fit outputs of shape {outputs.shape}: the "
            "loss would broadcast one against the other. Check the last layer's units, or use "
            "sparse_categorical_crossentropy for integer classes."
        )
    if outputs.shape.rank == 1:
        return labels[:, tf.newaxis], outputs[:, tf.newaxis]
    if not (labels.shape[1:].is_fully_defined() and outputs.shape[1:].is_fully_defined()):
        labels = tf.reshape(labels, tf.shape(outputs))  # fails if the sizes differ
    return labels, outputs


def zero_where_unweighted(labels: Tensors, weights: Tensors, *, but: int | None = None) -> Tensors:
    """Return labels with 0 wherever the weight is 0, or with 1 if `but` is 0.

    Placeholders for unknown labels, such as NaN or class -1, would otherwise cause a NaN gradient
    (0 · NaN) or an error.

    Args:
        labels: Numbers `[batch, ...]`; other labels are returned unchanged.
        weights: `[batch]` or `[batch, ...]`, aligned with labels from the left. None: labels are
            returned unchanged.
        but: The label that the loss masks (`ignore_class`). Rows with this label keep it, and no
            other row gets it.
    """
    if weights is None or tf.nest.is_nested(labels):
        return labels
    labels, weights = tf.convert_to_tensor(labels), tf.convert_to_tensor(weights)
    if labels.dtype == tf.string or labels.shape.rank is None or weights.shape.rank is None:
        return labels
    while weights.shape.rank > labels.shape.rank and weights.shape[-1] == 1:
        weights = tf.squeeze(weights, -1)
    if weights.shape.rank > labels.shape.rank:
        return labels
    while weights.shape.rank < labels.shape.rank:
        weights = weights[..., tf.newaxis]
    axes = zip(weights.shape, labels.shape, strict=True)
    if any(w not in (1, None, axis) for w, axis in axes):
        return labels  # the shapes do not fit, which the loss reports
    off = tf.equal(weights, tf.zeros_like(weights))
    if but is None:
        return tf.where(off, tf.zeros_like(labels), labels)
    off = tf.logical_and(off, tf.not_equal(labels, tf.cast(but, labels.dtype)))
    return tf.where(off, tf.cast(1 if but == 0 else 0, labels.dtype), labels)
