"""Whether rows influence each other, asked with made-up rows: then no window would be exact."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from trainer_module.loss import LossFunction, loss_sums

_ROWS = 4
_UNKNOWN_AXIS = 8
# A row beside others is rounded otherwise, to 8 or 10 bits in 16-bit layers and on GPUs (TF32); a
# mean, or a term that no row has, changes far more.
_TOLERANCE = 1e-3
_TOLERANCE_16_BIT = 5e-2


class _Answer(NamedTuple):
    """What a model and its loss say about some rows."""

    outputs: list[np.ndarray]
    sums: np.ndarray  # numerator, denominator; [2, outputs]
    added: float | None


def check_rows_are_independent(
    model: keras.Model,
    loss_fn: LossFunction,
    data: tuple[Any, Any, Any],
    *,
    added_losses: Literal["mean", "sum"],
) -> None:
    """Asks model and loss about rows a, b, c, d, then about a, b, c and about d.

        outputs(a..d)   = outputs(a..c), outputs(d)
        numerator(a..d) = numerator(a..c) + numerator(d), and so the denominator
        added(a..d)     = added(a..c) + added(d), or their mean by rows

    A model or loss that cannot be asked, because made-up rows mean nothing to it or because it
    answers at random, is left alone. The model runs in inference mode, and nothing is changed.

    Args:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        data: (features, labels, weights or None), tensors `[rows, ...]` of which only shapes and
            dtypes count.
        added_losses: As `accumulate_gradients` takes it.

    Raises:
        ValueError: Rows influence each other.
    """
    with tf.init_scope():
        try:
            rows = tf.nest.map_structure(_made_up, data)
            parts = [rows, rows, _cut(rows, slice(0, 3)), _cut(rows, slice(3, _ROWS))]
            with keras.StatelessScope(collect_losses=True, initialize_variables=False) as scope:
                answers = [_ask(model, loss_fn, part, scope) for part in parts]
        except Exception as error:  # whatever other people's code raises on rows that are not real
            logging.debug("Not asked whether rows are independent: %s", error)
            return
    whole, again, first, last = answers
    numbers = [whole.sums, *whole.outputs]
    repeats = all(map(np.array_equal, numbers, [again.sums, *again.outputs]))
    if not repeats or not all(np.all(np.isfinite(x)) for x in numbers):
        return
    dtypes = {layer.compute_dtype for layer in model._flatten_layers()}
    few_bits = dtypes & {"float16", "bfloat16"} or tf.config.list_physical_devices("GPU")
    tolerance = _TOLERANCE_16_BIT if few_bits else _TOLERANCE
    _check_outputs(whole, first, last, tolerance)
    _check_sums(whole, first, last, tolerance)
    _check_added(whole, first, last, tolerance, added_losses)


def _made_up(tensor: Any) -> Any:
    if tensor is None:
        return None
    random = np.random.default_rng(0)
    shape = [_ROWS, *(axis or _UNKNOWN_AXIS for axis in tensor.shape[1:])]
    if tensor.dtype.is_floating:
        return tf.cast(random.uniform(0.25, 0.75, shape), tensor.dtype)
    return tf.cast(random.integers(0, 2, shape), tensor.dtype)


def _cut(rows: Any, part: slice) -> Any:
    return tf.nest.map_structure(lambda t: None if t is None else t[part], rows)


def _ask(model: keras.Model, loss_fn: LossFunction, rows: Any, scope: Any) -> _Answer:
    features, labels, sample_weight = rows
    scope.losses.clear()
    outputs = model(features, training=False)
    added = float(sum(map(float, scope.losses))) if scope.losses else None
    sums = loss_sums(loss_fn, labels, outputs, sample_weight)
    return _Answer(
        outputs=[tf.convert_to_tensor(t).numpy() for t in tf.nest.flatten(outputs)],
        sums=np.stack([np.atleast_1d(value.numpy()) for value in sums]).astype("float64"),
        added=added,
    )


def _check_outputs(whole: _Answer, first: _Answer, last: _Answer, tolerance: float) -> None:
    for all_rows, *parts in zip(whole.outputs, first.outputs, last.outputs, strict=True):
        if [len(x) if x.ndim else 0 for x in (all_rows, *parts)] != [_ROWS, 3, 1]:
            continue  # not one value per row
        wide = [x.astype("float64") for x in (all_rows, *parts)]
        if any(x.shape[1:] != all_rows.shape[1:] for x in parts) or not np.allclose(
            wide[0], np.concatenate(wide[1:]), rtol=0, atol=tolerance * np.abs(wide[0]).max()
        ):
            raise ValueError(
                "the model's output for a row depends on the other rows of its batch (asked with "
                "made-up rows), so it would depend on micro_batch_size: look for a layer that "
                "takes a mean, a softmax or a product over axis 0, and let it work on each row by "
                "itself. Statistics over rows belong before the training, as Transform's are."
            )


def _check_sums(whole: _Answer, first: _Answer, last: _Answer, tolerance: float) -> None:
    for place, name in enumerate(("numerator", "denominator")):
        of_outputs = zip(whole.sums[place], first.sums[place], last.sums[place], strict=True)
        for all_rows, *parts in of_outputs:
            if abs(all_rows - sum(parts)) <= tolerance * sum(map(abs, (all_rows, *parts))):
                continue
            raise ValueError(
                f"the loss function's {name} does not add up: {all_rows:.6g} for four made-up "
                f"rows, {parts[0]:.6g} and {parts[1]:.6g} for three of them and one, so the "
                "result would depend on micro_batch_size. Return sums over rows: no mean, no "
                "constant, and no term that compares rows or that no row has (weight penalties "
                "belong into a layer's kernel_regularizer)."
            )


def _check_added(
    whole: _Answer,
    first: _Answer,
    last: _Answer,
    tolerance: float,
    added_losses: Literal["mean", "sum"],
) -> None:
    if whole.added is None or first.added is None or last.added is None:
        return
    combined = {"mean": (3 * first.added + last.added) / _ROWS, "sum": first.added + last.added}
    scale = max(map(abs, (whole.added, first.added, last.added)))
    fits = {name: abs(whole.added - value) <= tolerance * scale for name, value in combined.items()}
    if fits[added_losses]:
        return
    other = "sum" if added_losses == "mean" else "mean"
    advice = (
        f'set added_losses="{other}"'
        if fits[other]
        else "let add_loss get a mean over the rows, or split what is a mean from what is a sum"
    )
    raise ValueError(
        f"added_losses={added_losses!r}, but what the model's layers give to add_loss is no "
        f"{added_losses} over rows: {whole.added:.6g} for four made-up rows, {first.added:.6g} and "
        f"{last.added:.6g} for three of them and one: {advice}."
    )
