"""Global batches whose size follows a schedule by optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.options.batch_sizes import BatchSizes

# (number of the pass, rows of its batches int64 `[batches]`, repeated as needed) -> batches.
SizedBatches: TypeAlias = Callable[[int, np.ndarray], tf.data.Dataset]


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

        Args:
            sizes: The schedule.
            rows: Rows of a pass.
            batches: Returns the batches of a pass for given sizes.
            config: What identifies the batches in checkpoints.
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

        Args:
            number: Number of the pass, from 0.
            first_step: Optimizer step of its first batch.
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
