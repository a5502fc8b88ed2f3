"""Type aliases for values that type checkers cannot describe, and structures with None in them.

One dense tensor is a `tf.Tensor`, an optimizer a `keras.optimizers.Optimizer`, and a value that is
only passed on or inspected is an `object`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf


# None, a bool, a number, a string, or a list or dict (with string keys) of these, nested.
Json: TypeAlias = Any


# A tensor, an array, or a dict, list or tuple of them, nested to any depth; None if optional.
Tensors: TypeAlias = Any
# (features, labels) or (features, labels, weights); each tensor has shape [rows, ...].
Batch: TypeAlias = Sequence[Tensors]
# One dense value: a tensor, an array of the same dtype or a Python number.
TensorLike: TypeAlias = "tf.Tensor | np.ndarray | float"
# What `strategy.run` takes and returns: a tensor, or one tensor per replica.
PerReplica: TypeAlias = "tf.Tensor | tf.distribute.DistributedValues"
# A shape, as Keras passes it to `build`: (None, 3), or a dict, list or tuple of shapes.
Shape: TypeAlias = Any
# A dense tf.Tensor, tf.IndexedSlices, or None if the loss does not depend on the variable.
Gradient: TypeAlias = Any
# A keras.Variable or a tf.Variable.
Variable: TypeAlias = Any
# (variable, tensor) pairs: values to use instead of reading the variables.
VariableValues: TypeAlias = "Sequence[tuple[Variable, tf.Tensor]]"
# A Keras loss, its name, a function, or a dict or list of these: what `weighted_loss` takes.
LossLike: TypeAlias = Any
# `(labels, outputs, sample_weight) -> (numerator, denominator)`.
LossFunction: TypeAlias = "Callable[..., tuple[tf.Tensor, tf.Tensor]]"
# What layers pass to `add_loss`, as a function of the rows.
AddedLosses: TypeAlias = Literal["mean", "sum"]


def present_leaves(structure: Tensors) -> list[tf.Tensor]:
    """Return the leaves that are not None, in the order of `tf.nest.flatten`."""
    import tensorflow as tf  # here, because other importers need none

    return [leaf for leaf in tf.nest.flatten(structure) if leaf is not None]


def with_leaves(structure: Tensors, leaves: Iterable[tf.Tensor]) -> Tensors:
    """Return the structure with other leaves, in the order of `present_leaves`; None stays None."""
    import tensorflow as tf

    rest = iter(leaves)
    return tf.nest.map_structure(lambda leaf: None if leaf is None else next(rest), structure)


def map_present(function: Callable[[tf.Tensor], object], structure: Tensors) -> Tensors:
    """Return the structure of the function's results; None stays None."""
    return with_leaves(structure, map(function, present_leaves(structure)))
