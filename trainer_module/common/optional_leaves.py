"""Flatten structures of tensors in which a leaf may be None, such as a batch without weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tensorflow as tf

from trainer_module.common.tensors import Tensors


def present_leaves(structure: Tensors) -> list[tf.Tensor]:
    """Return the leaves that are not None, in the order of `tf.nest.flatten`."""
    return [leaf for leaf in tf.nest.flatten(structure) if leaf is not None]


def with_leaves(structure: Tensors, leaves: Iterable[tf.Tensor]) -> Tensors:
    """Return the structure with new leaves; None stays None.

    Args:
        structure: A structure of any values or None.
        leaves: One for each leaf that is not None, in the order of `present_leaves`.
    """
    rest = iter(leaves)
    return tf.nest.map_structure(lambda leaf: None if leaf is None else next(rest), structure)


def map_present(function: Callable[[tf.Tensor], object], structure: Tensors) -> Tensors:
    """Return the structure of the function's results; None stays None."""
    return with_leaves(structure, map(function, present_leaves(structure)))
