"""Compute a loss as two sums that do not depend on how a batch is split."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import keras
import tensorflow as tf

from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import LossFunction, LossLike, Tensors
from trainer_module.losses.loss_values import (
    OutputLoss,
    Values,
    class_weights,
    output_loss,
    values_of,
)

_Reduction = Literal["weighted_mean", "mean"]
# A number per output, in the structure of the losses.
_LossWeights = float | Sequence["_LossWeights"] | Mapping[str, "_LossWeights"] | None


class LossSums(NamedTuple):
    """Σ w_i l_i and Σ w_i of some rows; both add up over micro-batches and replicas.

    They are scalars, or `[outputs]` each if outputs count different rows or tokens. The loss is the
    sum of the quotients.
    """

    numerator: tf.Tensor
    denominator: tf.Tensor


@naming_replacements()
def weighted_loss(
    loss: LossLike,
    *,
    loss_weights: _LossWeights = None,
    reduction: _Reduction = "weighted_mean",
    class_weight: Mapping[int, float] | None = None,
) -> WeightedLoss:
    """Return a loss function `(labels, outputs, sample_weight=None) -> (numerator, denominator)`.

    Args:
        loss: A Keras loss, its name, a function `(labels, outputs) -> losses per row`, or a dict
            or list of these with the structure of the model's outputs (None for an output without
            a loss). Custom Keras losses and functions get labels in the rank and dtype of the
            outputs, as from Keras.
        loss_weights: For several outputs, the factor of each, in the same structure; default: 1.
        reduction: "weighted_mean" divides by Σ w_i. "mean" divides by the number of values
            regardless of their weights, as "sum_over_batch_size" in Keras.
        class_weight: Weight of the rows of each class, default 1. It is multiplied with
            `sample_weight`, in training only, as in `fit` of Keras; `Evaluation` uses 1. Supported
            for a single output.

    A weighted mean with negative weights is undefined: "weighted_mean" returns a denominator of
    NaN, and `TrainStep` treats the window as not finite. "mean" accepts negative weights. Where a
    weight is 0, the label may have any value. If all weights of a window are 0, the window is empty
    and updates nothing. With "mean" it still has rows to divide by, so it is a step whose gradient
    is only that of the regularisers.

    Losses per token (`[batch, time]`) are summed over tokens, and the denominator counts tokens. It
    does not count tokens that are masked by the model (`Embedding(mask_zero=True)`) or by the loss
    (`ignore_class`). Per-row weights `[batch]` apply to each token.

    With several outputs, each loss is divided by its Σ w_i. Weights are one tensor for all outputs,
    or have the structure of the losses (None for an output without weights). If masks or weights
    make the sums of weights differ, gradients are kept per output. A window then takes the memory
    of one more set of gradients and the time of one more backward pass for each output.

    Raises:
        ValueError: A name is unknown, a Keras loss has reduction="sum", the reduction is unknown, a
            class weight is not a finite number of at least 0, or `loss_weights` or `class_weight`
            do not fit the outputs.
    """
    for number, weight in (class_weight or {}).items():
        if number != int(number) or number < 0 or not 0 <= weight < math.inf:
            raise ValueError(
                f"class_weight={dict(class_weight or {})}: give classes 0, 1, ... and finite "
                "weights of at least 0."
            )
    if reduction not in ("weighted_mean", "mean"):
        raise ValueError(f"reduction={reduction!r}: use 'weighted_mean' or 'mean'.")
    if not is_nested(loss):
        if loss_weights is not None:
            raise ValueError(
                f"loss_weights={loss_weights!r} needs one loss per output, got {loss!r}."
            )
        term = _OutputTerm((), output_loss(loss), 1.0)
        return WeightedLoss(loss, None, reduction, class_weight or None, (term,))
    losses = {path: one for path, one in leaves(loss).items() if one is not None}
    if not losses:
        raise ValueError(f"loss={loss!r} has no loss: give one for at least one output.")
    factors = dict.fromkeys(losses, 1.0)
    if loss_weights is not None:
        factors = {path: factor for path, factor in leaves(loss_weights).items() if path in losses}
        if set(factors) != set(losses) or len(leaves(loss_weights)) > len(leaves(loss)):
            raise ValueError(
                f"loss_weights has {sorted(map(path_name, leaves(loss_weights)))}, the losses "
                f"have {sorted(map(path_name, losses))}: give one weight per output."
            )
    terms = [_OutputTerm(p, output_loss(one), float(factors[p])) for p, one in losses.items()]
    if class_weight and len(terms) > 1:
        raise ValueError(
            f"class_weight={dict(class_weight)} of {len(terms)} outputs: it is for a single one; "
            "give sample_weight the structure of the losses instead."
        )
    return WeightedLoss(loss, loss_weights, reduction, class_weight or None, tuple(terms))


class _OutputTerm(NamedTuple):
    """The loss of the output at a path, and its factor."""

    path: Path
    loss: OutputLoss
    factor: float


@dataclasses.dataclass(frozen=True)
class WeightedLoss:
    """The loss function that `weighted_loss` returns, with its arguments.

    Attributes:
        loss: Argument of `weighted_loss`.
        loss_weights: Argument of `weighted_loss`.
        reduction: Argument of `weighted_loss`.
        class_weight: Argument of `weighted_loss`; None if empty.
        terms: One term per output with a loss.
    """

    loss: LossLike
    loss_weights: _LossWeights
    reduction: _Reduction
    class_weight: Mapping[int, float] | None
    terms: tuple[_OutputTerm, ...] = dataclasses.field(repr=False)

    def __call__(
        self, labels: Tensors, outputs: Tensors, sample_weight: Tensors = None
    ) -> LossSums:
        """Return Σ w_i l_i and Σ w_i.

        Raises:
            ValueError: The arguments do not fit each other or the losses.
        """
        pairs = [self._values(term, labels, outputs, sample_weight) for term in self.terms]
        sums = [self._sums(*pair) for pair in pairs]
        if len(self.terms) == 1:
            numerator, denominator = sums[0]
            factor = self.terms[0].factor
            return LossSums(numerator if factor == 1 else factor * numerator, denominator)
        dtype = tf.float64 if any(s.numerator.dtype == tf.float64 for s in sums) else tf.float32
        numerators = [
            term.factor * tf.cast(one.numerator, dtype)
            for term, one in zip(self.terms, sums, strict=True)
        ]
        denominators = [tf.cast(one.denominator, dtype) for one in sums]
        values = [values for values, _ in pairs]
        if not self._count_the_same(values, sample_weight):
            return LossSums(tf.stack(numerators), tf.stack(denominators))
        # Divide by the number of values per row, so that the denominator counts rows.
        sizes = [each.values.shape[1:].num_elements() for each in values]
        means = [numerator / size for numerator, size in zip(numerators, sizes, strict=True)]
        return LossSums(tf.add_n(means), denominators[0] / sizes[0])

    def _values(
        self, term: _OutputTerm, labels: Tensors, outputs: Tensors, sample_weight: Tensors
    ) -> tuple[Values, bool]:
        """Return the losses of one output, and whether it has weights."""
        alone = len(self.terms) == 1
        of_output = _part(outputs, term.path, "the model's outputs", alone=alone)
        of_labels = _part(labels, term.path, "labels", alone=alone)
        weights = _part(sample_weight, term.path, "sample_weight", alone=alone)
        if self.class_weight and of_labels is not None:
            weights = class_weights(term.loss, of_labels, weights, self.class_weight)
        return values_of(term.loss, of_labels, of_output, weights), weights is not None

    def _count_the_same(self, found: list[Values], sample_weight: Tensors) -> bool:
        """Return whether Σ w of one output determines Σ w of all outputs."""
        if any(values.counted is not None for values in found):
            return False
        if not all(values.values.shape[1:].is_fully_defined() for values in found):
            return False
        if sample_weight is None or self.reduction == "mean":
            return True
        if is_nested(sample_weight):
            return False
        return tf.TensorShape(sample_weight.shape)[1:].num_elements() == 1  # per row

    def _sums(self, found: Values, given: bool) -> LossSums:
        numerator = tf.reduce_sum(found.values * found.weights)
        if self.reduction == "weighted_mean":
            return LossSums(numerator, _sum_of_weights(found.weights, given=given))
        counted = tf.ones_like(found.values) if found.counted is None else found.counted
        return LossSums(numerator, tf.reduce_sum(counted))


def _part(structure: Tensors, path: Path, what: str, *, alone: bool) -> Tensors:
    """Return the part of labels, outputs or weights that an output's loss gets."""
    if alone and (not path or not is_nested(structure)):
        structure = only(structure)
        tensors = [path for path, leaf in leaves(structure).items() if hasattr(leaf, "shape")]
        if is_nested(structure) and tensors:
            raise ValueError(
                f"{what} have several parts, {', '.join(map(path_name, tensors))}: give one loss "
                "for each, as weighted_loss({output: loss, ...})."
            )
        return structure
    return part_at(structure, path, what, of="the loss")


def _sum_of_weights(weights: tf.Tensor, *, given: bool) -> tf.Tensor:
    """Return Σ w_i, or NaN if some w_i < 0, for which a weighted mean is undefined."""
    total = tf.reduce_sum(weights)
    if not given:
        return total
    nan = tf.constant(float("nan"), total.dtype)
    return tf.where(tf.reduce_any(weights < 0), nan, total)


def as_loss_function(loss: LossLike) -> LossFunction:
    """Return `loss` if it is a function of three arguments, else `weighted_loss(loss)`.

    A function `(labels, outputs)` returns one loss per row, as in Keras. A function with further
    arguments that have defaults counts as such too, unless the name of the third argument is "w" or
    contains "weight", such as sample_weight.

    Raises:
        ValueError: See `weighted_loss`. Also, a function takes neither two nor three arguments.
    """
    if isinstance(loss, WeightedLoss):
        return loss
    if isinstance(loss, (str, keras.losses.Loss, Mapping, Sequence)):
        return weighted_loss(loss)
    if not callable(loss):
        raise ValueError(
            f"loss_fn={loss!r}: give a function (labels, outputs, sample_weight) -> "
            "(numerator, denominator), a Keras loss, or its name."
        )
    if getattr(loss, "__module__", "").startswith("keras."):
        return weighted_loss(loss)
    function: LossLike = loss
    return function if _takes_weights(function) else weighted_loss(function)


def _takes_weights(loss: Callable[..., object]) -> bool:
    """Return whether a function takes (labels, outputs, sample_weight)."""
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):
        return True  # no signature, such as for functions in C
    positional = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = [parameter for parameter in positional if parameter.default is parameter.empty]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    for count in (3, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        if count == 2 or len(needed) == 3 or takes_any:
            return count == 3
        third = positional[2].name.lower()
        return third == "w" or "weight" in third
    raise ValueError(
        f"loss function {getattr(loss, '__name__', loss)!r} takes {signature}: give a function "
        "(labels, outputs) -> one loss per row, or (labels, outputs, sample_weight) -> (numerator, "
        "denominator)."
    )


def loss_sums(
    loss_fn: LossFunction, labels: Tensors, outputs: Tensors, sample_weight: Tensors
) -> LossSums:
    """Call a loss function, and return its two sums after checking them.

    Raises:
        ValueError: The function did not return two scalars of at least 32 bits.
    """
    found = loss_fn(labels, outputs, sample_weight)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise ValueError(
            f"the loss function returned {found!r}: return (numerator, denominator), the weighted "
            "sum of the rows' losses and the sum of their weights; or give weighted_loss(...) of "
            "a function (labels, outputs) -> one loss per row."
        )
    sums = LossSums(*map(tf.convert_to_tensor, found))
    rank = 1 if isinstance(found, LossSums) and sums.numerator.shape.rank == 1 else 0
    for name, value in zip(sums._fields, sums, strict=True):
        if value.shape.rank != rank:
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


Path = tuple[str | int, ...]


def is_nested(structure: Tensors) -> bool:
    """Return whether a structure is a dict, a list or a tuple."""
    return isinstance(structure, (Mapping, list, tuple))


def leaves(structure: Tensors, path: Path = ()) -> dict[Path, Tensors]:
    """Return the leaves of a structure by path; the path of a single value is ()."""
    if not is_nested(structure):
        return {path: structure}
    return {
        place: leaf
        for key, part in _items(structure)
        for place, leaf in leaves(part, (*path, key)).items()
    }


def at(structure: Tensors, path: Path) -> Tensors:
    """Return the part of a structure at a path.

    Raises:
        KeyError: There is no such part; the argument of the error describes what exists instead.
    """
    for key in path:
        if not is_nested(structure):
            raise KeyError("are not a dict or a list")
        parts = dict(_items(structure))
        if key not in parts:
            raise KeyError("have " + ", ".join(map(repr, parts)))
        structure = parts[key]
    return structure


def only(structure: Tensors) -> Tensors:
    """Return the tensor of a structure with a single tensor, as Keras does; else the structure."""
    if not is_nested(structure):
        return structure
    found = list(leaves(structure).values())
    # A list with one number is not a structure with one tensor.
    return found[0] if len(found) == 1 and getattr(found[0], "shape", ()) else structure


def part_at(structure: Tensors, path: Path, what: str, *, of: str) -> Tensors:
    """Return the part of labels, outputs or weights that belongs to an output.

    Raises:
        ValueError: The structure has no such part.
    """
    if what == "sample_weight" and not is_nested(structure):
        return structure
    try:
        return at(structure, path)
    except KeyError as error:
        raise ValueError(
            f"{of} has an output {path_name(path)!r}, but {what} {error.args[0]}: the losses, the "
            "labels and the model's outputs need the same keys, and so do weights if they are a "
            "dict or a list."
        ) from None


def path_name(path: Path) -> str:
    """Return the name of an output at a path, such as `a` or `a/0`."""
    return "/".join(map(str, path))


def _items(structure: Tensors) -> list[tuple[str | int, Tensors]]:
    return list(structure.items() if isinstance(structure, Mapping) else enumerate(structure))
