"""Make global batches of arrays, and batches whose size follows a schedule by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.tensors import Json, Tensors, map_present, present_leaves
from trainer_module.options.batch_sizes import BatchSizes

# (number of the pass, rows of its batches int64 `[batches]`, repeated as needed) -> batches.
SizedBatches: TypeAlias = Callable[[int, np.ndarray], tf.data.Dataset]
_AHEAD = 2


class ScheduledBatches:
    """The batches of passes over a known number of rows, by a schedule of sizes.

    A pass has its rows in an order that does not depend on the sizes, and ends with the remaining
    rows. So pass and first step determine all of its batches, and a checkpoint needs no more.
    """

    def __init__(
        self,
        sizes: BatchSizes,
        rows: int,
        batches: SizedBatches,
        config: Mapping[str, Json] | None = None,
    ) -> None:
        """Keep the arguments.

        `batches` returns those of a pass for given sizes; `config` identifies them in checkpoints.
        """
        self.sizes = sizes
        self.rows = rows
        self._batches = batches
        self._config = dict(config or {})

    def __call__(self, number: int) -> tf.data.Dataset:
        """Return the batches of a pass that begins with step 0."""
        return self.starting_at(number, 0)

    def starting_at(self, number: int, first_step: int) -> tf.data.Dataset:
        """Return the batches of a pass, with their number as cardinality.

        `first_step` is the optimizer step of its first batch.
        """
        runs = self.sizes.of_pass(self.rows, first_step)
        sizes, counts = zip(*runs, strict=True)
        # One number is repeated; several must cover the whole pass.
        of_each = np.array(sizes) if len(runs) == 1 else np.repeat(sizes, counts)
        with tf.device("CPU:0"):
            dataset = self._batches(number, of_each)
            return dataset.apply(tf.data.experimental.assert_cardinality(sum(counts)))

    def get_config(self) -> dict[str, Json]:
        """Return what decides the batches."""
        return self._config


def array_batches(
    data: tuple[Tensors, ...],
    batch_size: int | Mapping[int, int],
    *,
    shuffle: bool = True,
    seed: int = 0,
) -> ScheduledBatches:
    """Return `epoch -> global batches`, with the same batches at each call for the same epoch.

    Args:
        data: (features, labels) or (features, labels, weights): arrays, lists of rows or pandas
            tables with the same number of rows, or dicts, tuples and lists of arrays or None (an
            output without weights). Floats are converted to Keras' floatx, as in
            `keras.Model.fit`.
        batch_size: Rows of a global batch, or a schedule of sizes by step; the last batch of an
            epoch has the remaining rows.
        shuffle: Whether to draw a new order for each epoch, from `seed` and the epoch's number.
        seed: Seed of the orders.
    """
    arrays = tuple(as_arrays(part) for part in data)
    sizes = {len(array) for array in present_leaves(arrays)}
    if len(sizes) != 1:
        raise ValueError(
            f"the arrays of the training data have {', '.join(map(str, sorted(sizes)))} rows: give "
            "each the same number; lists are rows, several features are a dict of arrays."
        )
    (rows,) = sizes
    if rows == 0:
        raise ValueError("the training data has no batch: its arrays have no rows.")
    structure: list[tf.TypeSpec] = []

    # A new dataset would trace its function again in each epoch.
    with tf.device("CPU:0"):
        arrays = map_present(tf.convert_to_tensor, arrays)
        graph = tf.function(
            lambda order, sizes: _batches(order, arrays, sizes, structure), autograph=False
        ).get_concrete_function(tf.TensorSpec([rows], tf.int64), tf.TensorSpec([None], tf.int64))

    def of_epoch(epoch: int, sizes: np.ndarray) -> tf.data.Dataset:
        order = np.arange(rows)
        if shuffle:
            order = np.random.default_rng([seed, epoch]).permutation(rows)
        with tf.device("CPU:0"):
            variant = graph(tf.constant(order, tf.int64), tf.constant(sizes, tf.int64))
        return tf.data.experimental.from_variant(variant, structure[0])

    return ScheduledBatches(BatchSizes.of(batch_size), rows, of_epoch)


def _batches(
    order: tf.Tensor, arrays: Tensors, sizes: tf.Tensor, structure: list[tf.TypeSpec]
) -> tf.Tensor:
    dataset = tf.data.Dataset.from_tensors(order).rebatch(sizes)
    dataset = dataset.map(
        lambda places: map_present(lambda array: tf.gather(array, places), arrays)
    ).prefetch(_AHEAD)
    structure.append(dataset.element_spec)
    return tf.data.experimental.to_variant(dataset)


def as_arrays(part: Tensors) -> Tensors:
    """Return a part of the data with arrays or None as leaves; a list of numbers is one array."""
    if part is None:
        return None
    if isinstance(part, Mapping):
        return {key: as_arrays(each) for key, each in part.items()}
    if (
        isinstance(part, (list, tuple))
        and part
        and all(each is None or len(getattr(each, "shape", ())) > 0 for each in part)
    ):
        return tuple(as_arrays(each) for each in part)
    if isinstance(part, tf.Tensor):
        return part
    array = np.asarray(part)
    if array.dtype == object:
        array = _numbers_or_text(array)
    return array.astype(keras.config.floatx()) if array.dtype.kind == "f" else array


def _numbers_or_text(array: np.ndarray) -> np.ndarray:
    if all(isinstance(each, (str, bytes)) for each in array.ravel()):
        return array.astype(str)
    try:
        return array.astype(keras.config.floatx())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the training data has an array of objects that are no numbers ({error}): give each "
            "row the same length, and numbers or texts."
        ) from None
