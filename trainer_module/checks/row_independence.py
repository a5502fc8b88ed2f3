"""Check with synthetic rows that rows do not influence each other, so that windows are exact."""

from __future__ import annotations

from typing import Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.logits import warn_if_not_probabilities
from trainer_module.checks.model import compute_dtypes
from trainer_module.checks.randomness import draws_random_numbers
from trainer_module.checks.synthetic_rows import ROWS, random_weights, rows_of, synthetic_rows
from trainer_module.checks.warn_once import warn_once
from trainer_module.common.tensors import Tensors, VariableValues
from trainer_module.losses.weighted_loss import LossFunction, loss_sums

# Relative tolerances by the least precise compute dtype of the layers. In a batch of another size,
# a row uses other kernels of the device and is rounded differently (on GPUs to the 10 bits of
# TF32).
_OTHER_SHAPE = {"float64": 1e-9, "float32": 1e-4, "float16": 5e-2, "bfloat16": 5e-2}
_OTHER_SHAPE_ON_GPU = {**_OTHER_SHAPE, "float64": 1e-3, "float32": 1e-3}
# In a batch of the same size it uses the same kernels, and only a few bits differ.
_SAME_SHAPE = {"float64": 1e-15, "float32": 5e-7, "float16": 4e-3, "bfloat16": 3e-2}
_FEWEST_BITS_FIRST = ("bfloat16", "float16", "float32", "float64")


class _Output(NamedTuple):
    """A model's outputs for some rows, and the sum of the losses passed to `add_loss`."""

    outputs: Tensors
    added: float | None

    def arrays(self) -> list[np.ndarray]:
        return [tf.convert_to_tensor(t).numpy() for t in tf.nest.flatten(self.outputs)]


def check_rows_are_independent(
    model: keras.Model,
    loss_fn: LossFunction,
    data: tuple[Tensors, Tensors, Tensors],
    *,
    added_losses: Literal["mean", "sum"],
    draws: bool = False,
) -> None:
    """Check a model and a loss with synthetic rows, in training mode.

        outputs(a, b, c, d)[:2] = outputs(a, b, e, f)[:2]      with the same random numbers
        outputs(a..d)   = outputs(a..c), outputs(d)            without random numbers
        numerator(a..d) = numerator(a..c) + numerator(d), and so the denominator
        added(a..d)     = added(a..c) + added(d), or their mean by rows

    The model is also checked with random weights, because its weights may be 0 and hide a layer. A
    batch of another size gets other random numbers. So for a model that draws them in training, the
    equations with another number of rows are checked in inference mode. If the model or the loss
    fails for synthetic rows, a warning is logged once. Variables and seeds do not change.

    Args:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        data: (features, labels, weights or None), tensors `[rows, ...]` of which only shapes and
            dtypes count.
        added_losses: See `accumulate_gradients`.
        draws: Whether the model draws random numbers in training mode.

    Raises:
        ValueError: Rows influence each other.
    """
    # Errors for synthetic rows are raised by user code and do not mean that real rows fail.
    with tf.init_scope():
        rows, changed = synthetic_rows(data)
        try:
            results = _probe_model(model, rows[0], changed[0], draws=draws)
        except Exception as error:
            _warn_not_checked(f"the model {model.name!r}", error)
            return
        warn_if_not_probabilities(model, loss_fn, results.same_shape[-1][0].outputs)
        bits = _fewest_bits(model)
        for whole, again, other in results.same_shape:
            _check_same_shape(whole, again, other, bits)
        whole, first, last = results.outputs
        if results.other_shape:
            _check_outputs(whole, first, last, bits)
            _check_added(whole.added, first.added, last.added, bits, added_losses)
        try:
            sums = [
                _loss_sums(loss_fn, part[1], answer.outputs, part[2])
                for part, answer in zip((rows, *_parts(rows)), results.outputs, strict=True)
            ]
        except Exception as error:
            _warn_not_checked("the loss function", error)
            return
        _check_sums(sums[0], sums[1], sums[2], bits)


class _ProbeResults(NamedTuple):
    """All outputs of a model for synthetic rows.

    Attributes:
        same_shape: Per set of weights, the outputs for rows a, b, c, d, for the same rows again,
            and for a, b, e, f.
        outputs: Outputs for a, b, c, d; for a, b, c; and for d.
        other_shape: Whether the last two were computed by the model; if false, they are slices of
            the first.
    """

    same_shape: list[list[_Output]]
    outputs: list[_Output]
    other_shape: bool


def _probe_model(
    model: keras.Model, rows: Tensors, changed: Tensors, *, draws: bool
) -> _ProbeResults:
    weights = random_weights(model)
    try:
        _forward(model, rows, training=True, weights=weights)
    except ValueError:
        weights = []  # use the model's weights; random ones may be invalid, such as below 0
    same_shape = [
        [_forward(model, r, training=True, weights=w) for r in (rows, rows, changed)]
        for w in ([weights, []] if weights else [[]])
    ]
    if draws and _draws_in_inference(model, rows):
        whole = _forward(model, rows, training=False, weights=weights)
        parts = [_Output(part, whole.added) for part in _parts(whole.outputs)]
        return _ProbeResults(same_shape, [whole, *parts], other_shape=False)
    answers = [
        _forward(model, part, training=not draws, weights=weights) for part in (rows, *_parts(rows))
    ]
    return _ProbeResults(same_shape, answers, other_shape=True)


def _parts(rows: Tensors) -> tuple[Tensors, Tensors]:
    return rows_of(rows, [0, 1, 2]), rows_of(rows, [3])


def _draws_in_inference(model: keras.Model, features: Tensors) -> bool:
    def call(features: Tensors) -> list[tf.Tensor]:
        with keras.StatelessScope(initialize_variables=False):
            return tf.nest.flatten(model(features, training=False))

    traced = tf.function(call, autograph=False).get_concrete_function(features)
    return draws_random_numbers(traced.graph)


def _fewest_bits(model: keras.Model) -> str:
    used = compute_dtypes(model)
    return next((dtype for dtype in _FEWEST_BITS_FIRST if dtype in used), "float32")


def _other_shape_tolerance(bits: str) -> float:
    gpu = tf.config.list_physical_devices("GPU")
    return (_OTHER_SHAPE_ON_GPU if gpu else _OTHER_SHAPE)[bits]


def _warn_not_checked(who: str, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    message = (
        f"{who} was not checked for rows that influence each other, because it fails for "
        f"synthetic rows ({reason[:300]}). If rows influence each other, the result depends on "
        "micro_batch_size."
    )
    warn_once(message[0].upper() + message[1:])


def _forward(
    model: keras.Model, rows: Tensors, *, training: bool, weights: VariableValues
) -> _Output:
    # All calls start from the same seeds, because the scope does not store assignments.
    scope = keras.StatelessScope(weights, collect_losses=True, initialize_variables=False)
    with scope:
        outputs = model(rows, training=training)
    added = float(sum(map(float, scope.losses))) if scope.losses else None
    answer = _Output(outputs, added)
    if not all(np.all(np.isfinite(x)) for x in (*answer.arrays(), added or 0.0)):
        raise ValueError("its outputs for them are not finite")
    return answer


def _loss_sums(
    loss_fn: LossFunction, labels: Tensors, outputs: Tensors, weights: Tensors
) -> np.ndarray:
    """Return numerator and denominator, `[2, outputs]`."""
    sums = loss_sums(loss_fn, labels, outputs, weights)
    found = np.stack([np.atleast_1d(value.numpy()) for value in sums]).astype("float64")
    if not np.all(np.isfinite(found)):
        raise ValueError("its sums for them are not finite")
    return found


_ROWS_DEPEND = (
    "the model's output for a row depends on the other rows of its batch (checked with synthetic "
    "rows), so it would depend on micro_batch_size: find the layer that computes a mean, a "
    "softmax or a product over axis 0, and make it process each row separately. Compute "
    "statistics over rows before the training, for example in Transform."
)


def _check_same_shape(whole: _Output, again: _Output, other: _Output, bits: str) -> None:
    for one, repeated, changed in zip(whole.arrays(), again.arrays(), other.arrays(), strict=True):
        if not one.ndim or {len(one), len(changed)} != {ROWS} or one.shape != changed.shape:
            continue  # not one value per row
        one, repeated, changed = (x.astype("float64") for x in (one, repeated, changed))
        largest = max(np.abs(one).max(initial=0), np.abs(changed).max(initial=0))
        noise = np.abs(one - repeated).max(initial=0)
        if np.abs(one - changed)[:2].max(initial=0) > _SAME_SHAPE[bits] * largest + 10 * noise:
            raise ValueError(_ROWS_DEPEND)


def _check_outputs(whole: _Output, first: _Output, last: _Output, bits: str) -> None:
    tolerance = _other_shape_tolerance(bits)
    answers = (whole.arrays(), first.arrays(), last.arrays())
    for all_rows, *parts in zip(*answers, strict=True):
        if [len(x) if x.ndim else 0 for x in (all_rows, *parts)] != [ROWS, 3, 1]:
            continue  # not one value per row
        wide = [x.astype("float64") for x in (all_rows, *parts)]
        if any(x.shape[1:] != all_rows.shape[1:] for x in parts) or not np.allclose(
            wide[0], np.concatenate(wide[1:]), rtol=0, atol=tolerance * np.abs(wide[0]).max()
        ):
            raise ValueError(_ROWS_DEPEND)


def _check_sums(whole: np.ndarray, first: np.ndarray, last: np.ndarray, bits: str) -> None:
    tolerance = _other_shape_tolerance(bits)
    for place, name in enumerate(("numerator", "denominator")):
        for all_rows, *parts in zip(whole[place], first[place], last[place], strict=True):
            if abs(all_rows - sum(parts)) <= tolerance * sum(map(abs, (all_rows, *parts))):
                continue
            raise ValueError(
                f"the loss function's {name} does not add up: {all_rows:.6g} for four synthetic "
                f"rows, {parts[0]:.6g} and {parts[1]:.6g} for three of them and one, so the "
                "result would depend on micro_batch_size. Return sums over rows: no mean, no "
                "constant, and no term that compares rows or does not belong to a row (weight "
                "penalties belong in a layer's kernel_regularizer)."
            )


def _check_added(
    whole: float | None,
    first: float | None,
    last: float | None,
    bits: str,
    added_losses: Literal["mean", "sum"],
) -> None:
    if whole is None or first is None or last is None:
        return
    combined = {"mean": (3 * first + last) / ROWS, "sum": first + last}
    tolerance = _other_shape_tolerance(bits) * max(map(abs, (whole, first, last)))
    fits = {name: abs(whole - value) <= tolerance for name, value in combined.items()}
    if fits[added_losses]:
        return
    other = "sum" if added_losses == "mean" else "mean"
    advice = (
        f'set added_losses="{other}"'
        if fits[other]
        else "pass a mean over the rows to add_loss, and do not mix means and sums"
    )
    raise ValueError(
        f"added_losses={added_losses!r}, but what the model's layers pass to add_loss is not a "
        f"{added_losses} over rows: {whole:.6g} for four synthetic rows, {first:.6g} and "
        f"{last:.6g} for three of them and one: {advice}."
    )
