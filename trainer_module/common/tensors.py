"""Type aliases for values that type checkers cannot describe; Keras accepts many kinds."""

from __future__ import annotations

from typing import Any, TypeAlias

# A tensor, an array, or a dict, list or tuple of them, nested to any depth; None if optional.
Tensors: TypeAlias = Any
# A dense tf.Tensor, tf.IndexedSlices, or None if the loss does not depend on the variable.
Gradient: TypeAlias = Any
# A keras.Variable or a tf.Variable.
Variable: TypeAlias = Any
# A Keras loss, its name, a function, or a dict or list of these: what `weighted_loss` takes.
LossLike: TypeAlias = Any
