"""Type aliases: columns of any storage, and what a step says of a column. Loads no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

# A column as TFT passes it: dense where the schema promises a value in every row.
ColumnTensor: TypeAlias = "tf.Tensor | tf.SparseTensor | tf.RaggedTensor"
Columns: TypeAlias = Mapping[str, ColumnTensor]
# In the graph of the analysis, or of one accumulator.
Array: TypeAlias = "np.ndarray | tf.Tensor"
# Name -> number, text, list of these, or None: what `features explain` shows of a step.
Explanation: TypeAlias = Mapping[str, Any]
