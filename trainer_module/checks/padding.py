"""Check that a model's outputs for a row do not depend on the padding behind its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.row_independence import changed_value
from trainer_module.common.sequences import level_of, row_lengths, trimmed

_ROWS = 8
_TOLERANCE = {2: 0.05, 4: 1e-3, 8: 1e-6}  # by the bytes of the computation's dtype


def check_padding(
    model: keras.Model, features: Mapping[str, tf.Tensor], names: Sequence[str]
) -> None:
    """Compare a model's outputs for the shortest rows with and without a part of their padding.

    The weights are changed a little, because weights of 0 hide layers. Rows that are all of the
    longest length show nothing.

    Raises:
        ValueError: An output differs.
    """
    lengths = row_lengths(features, names).numpy().sum(axis=0)
    shortest = np.argsort(lengths, kind="stable")[:_ROWS]
    rows = {name: tf.gather(tensor, shortest) for name, tensor in features.items()}
    variables = [v for v in model.variables if "float" in v.dtype]
    values = [(v, changed_value(v, v.value, i)) for i, v in enumerate(variables)]
    with keras.StatelessScope(values, initialize_variables=False):
        parts = (rows, trimmed(rows, names, int(level_of(rows, names))))
        outputs = [keras.tree.flatten(model(part, training=False)) for part in parts]
    tolerance = _TOLERANCE[tf.as_dtype(model.compute_dtype).size]
    for whole, part in zip(*(map(_wide, each) for each in outputs), strict=True):
        if whole.ndim > 1 and whole.shape[1] != part.shape[1]:  # one output per token
            whole = whole[:, : part.shape[1]]
        error = np.abs(whole - part).max(initial=0)
        if error > tolerance * np.abs(whole).max(initial=0):
            raise ValueError(
                f"model {model.name!r}: an output changes by {error:.3g} with the padding behind "
                f"the tokens of {', '.join(map(repr, names))}, so that it would depend on the "
                "other rows of a micro-batch. Leave out id 0, which is padding: use "
                "keras.layers.Embedding(mask_zero=True) in front of layers that take a mask, or "
                "weigh the tokens by keras.ops.not_equal(ids, 0)."
            )


def _wide(tensor: tf.Tensor) -> np.ndarray:
    return tf.cast(tensor, tf.float64).numpy()
