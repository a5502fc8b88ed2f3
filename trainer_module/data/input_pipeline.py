"""Read transformed rows as global batches, shuffle them in blocks, summarize them in one pass."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from shared_core.feature_layout import ImageFeature
from shared_core.images import read_images
from trainer_module.common.sequences import level_of, trimmed
from trainer_module.common.tensors import Json, Tensors
from trainer_module.data.in_memory import ScheduledBatches, SizedBatches
from trainer_module.data.label_scale import LabelMoments, LabelScale, label_numbers
from trainer_module.data.parquet_rows import SUFFIX, ParquetRows, is_parquet
from trainer_module.data.row_source import (
    Feature,
    PaddedFeature,
    TFRecordRows,
    block_rows,
    row_bytes,
)
from trainer_module.devices.replicas import Replicas, Share
from trainer_module.options.batch_sizes import BatchSizes

_RowSource: TypeAlias = TFRecordRows | ParquetRows

# Most bytes of a shuffle buffer that is shuffled in blocks, in up to four copies.
_MOST_BYTES = 128 << 20
_MOST_PIXELS = 64 << 20  # bytes of a shuffle buffer of rows with pictures
_SCAN_ROWS = 8192
_BATCHES_AHEAD = 2
_MOST_CLASSES = 10_000


@dataclasses.dataclass(frozen=True)
class Examples:
    """Files of transformed rows and how to read them.

    The order of rows depends on the files, but not on the number of workers or the machine.
    """

    # Paths, in a fixed order: Parquet files, which end with `.parquet`, or TFRecords of
    # tf.Examples, where `.gz` files are compressed
    files: tuple[str, ...]
    feature_spec: dict[str, Feature]  # the features to read
    label: str  # feature that becomes the labels `[rows, ...]`
    weight: str | None = None  # feature that becomes the weights `[rows]`, or None
    label_scale: LabelScale | None = None  # scale applied to labels; None: no scaling
    label_dtype: tf.DType | None = None  # type of labels without a scale; None: that of the feature
    # Replicas of this worker among several workers. Each batch is then their `Share` of a global
    # batch that is the same for any number of workers. All rows are read and ordered, and only
    # those of the share are parsed. None: whole batches
    replicas: Replicas | None = None
    images: tuple[ImageFeature, ...] = ()  # features that are stored as bytes
    # Whether a batch's sequences (`PaddedFeature`) are cut to the length that holds its rows
    trims: bool = False

    @property
    def token_features(self) -> list[str]:
        """The features that are sequences, padded with 0."""
        return [n for n, each in self.feature_spec.items() if isinstance(each, PaddedFeature)]

    def narrowed(self, inputs: Collection[str]) -> Examples:
        """Return the examples with only these features, label and weight."""
        kept = {*inputs, self.label, self.weight}
        spec = {name: each for name, each in self.feature_spec.items() if name in kept}
        return dataclasses.replace(self, feature_spec=spec)

    def for_training(self, scale: LabelScale | None = None) -> Examples:
        """Return the examples with labels as a model takes them: scaled, or at most float32."""
        dtype = None if self.label_dtype is None else tf.float32
        return dataclasses.replace(self, label_scale=scale, label_dtype=dtype)

    def batches(self, batch_rows: int) -> tf.data.Dataset:
        """Return (features, labels) or (features, labels, weights), in the same order each time.

        Rows of Parquet files are in the order of the files. Several TFRecord files are read at a
        time, a block of rows of each in turn. The last batch may be shorter.
        """
        return self._in_order(0, np.array([batch_rows]))

    def every(self, nth: int, batch_rows: int) -> tf.data.Dataset:
        """Return batches as `batches` does, but only of each nth row; the others are not parsed."""
        if nth == 1:
            return self.batches(batch_rows)
        blocks = self._parsed(self._source.sampled(nth))
        return blocks.rebatch(batch_rows).prefetch(_BATCHES_AHEAD).with_options(_options())

    def shuffled_batches(
        self,
        batch_rows: int | Mapping[int, int],
        *,
        shuffle_buffer_rows: int,
        seed: int,
        rows: int,
    ) -> ScheduledBatches:
        """Return `epoch -> batches`, with the same batches at each call for the same epoch.

        `batch_rows` are those of a global batch, or sizes by step; `rows` are those of all files.
        First the order of files (of Parquet files: row groups) is shuffled, then rows in a buffer;
        without a buffer (0 rows), the order is that of `batches`. The config, which identifies the
        batches in checkpoints, omits the worker's part and the names of files, which differ between
        machines. `run_fn` compares the content of the files.
        """
        sizes = BatchSizes.of(batch_rows)
        config: dict[str, Json] = {
            "batch_rows": {
                str(step): size for step, size in zip(sizes.steps, sizes.rows, strict=True)
            },
            "shuffle_buffer_rows": shuffle_buffer_rows,
            "seed": seed,
            "features": sorted(self.feature_spec),
            "label": self.label,
            "weight": self.weight,
        }
        of_epoch = self._in_order
        if shuffle_buffer_rows > 0:
            of_epoch = self._shuffled_epochs(shuffle_buffer_rows, seed)
        return ScheduledBatches(sizes, rows, of_epoch, config)

    def _in_order(self, epoch: int, sizes: np.ndarray) -> tf.data.Dataset:
        blocks = self._ready(self._source.in_order())
        return self._global_batches(blocks, sizes).with_options(_options())

    def _shuffled_epochs(self, shuffle_buffer_rows: int, seed: int) -> SizedBatches:
        """Return `(epoch, sizes) -> batches`; see `shuffled_batches`."""
        structure: list[Tensors] = []
        source = self._source
        parts = source.parts

        def shuffled(order: tf.Tensor, seed: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
            blocks = self._shuffled(source, order, seed, shuffle_buffer_rows)
            dataset = self._global_batches(blocks, sizes)
            structure.append(dataset.element_spec)
            return tf.data.experimental.to_variant(dataset)

        # A new dataset traces its functions again, which takes longer than reading some thousand
        # rows, so it is created once, as a graph.
        with tf.device("CPU:0"):
            graph = tf.function(shuffled, autograph=False).get_concrete_function(
                tf.TensorSpec([parts], tf.int64),
                tf.TensorSpec([], tf.int64),
                tf.TensorSpec([None], tf.int64),
            )

        def epoch_batches(epoch: int, sizes: np.ndarray) -> tf.data.Dataset:
            random = np.random.default_rng([seed, epoch])
            order = random.permutation(parts)
            # A function's results are placed on the GPU if there is one, and an iterator on its
            # dataset's device: the dataset's functions would then run on the GPU.
            with tf.device("CPU:0"):
                variant = graph(
                    tf.constant(order, tf.int64),
                    tf.constant(random.integers(2**31)),
                    tf.constant(sizes, tf.int64),
                )
            dataset = tf.data.experimental.from_variant(variant, structure[0])
            return dataset.with_options(_options())

        return epoch_batches

    def _shuffled(
        self, source: _RowSource, order: tf.Tensor, seed: tf.Tensor, buffer_rows: int
    ) -> tf.data.Dataset:
        """Return rows in random order, ready for `_global_batches`, in blocks of any size."""
        bytes_per_row = row_bytes(self.feature_spec)
        if self._has_pictures:
            buffer_rows = max(1, min(buffer_rows, _MOST_PIXELS // bytes_per_row))
        is_small = not self._has_pictures and buffer_rows * bytes_per_row <= _MOST_BYTES
        if is_small and buffer_rows >= source.block_shuffle_rows:
            buffer_rows = max(buffer_rows, block_rows(self.feature_spec))
            held = buffer_rows // 2
            blocks = self._ready(source.in_turn(order)).rebatch(buffer_rows - held)
            return _shuffle_blocks(blocks, held_rows=held, seed=seed).prefetch(1)
        # Large rows take longer to read than to move one by one, which needs the least memory.
        tf.random.set_seed(1)  # for this graph: the order does not depend on the global seed
        rows = source.one_by_one(order)
        rows = rows.shuffle(buffer_rows, seed=seed, reshuffle_each_iteration=False)
        return self._ready(rows.batch(block_rows(self.feature_spec)))

    def _ready(self, blocks: tf.data.Dataset) -> tf.data.Dataset:
        """Return parsed rows; with several workers, rows to parse, in the same order."""
        return self._parsed(blocks) if self.replicas is None else blocks

    def _global_batches(
        self, blocks: tf.data.Dataset, sizes: tf.Tensor | np.ndarray
    ) -> tf.data.Dataset:
        """Return batches of prepared blocks, or this worker's share of each batch.

        `sizes` are the rows of the batches in order, int64 `[batches]`; repeated as often as
        needed.
        """
        batches = blocks.rebatch(sizes)
        if self.replicas is not None:
            batches = batches.map(self._share, num_parallel_calls=os.cpu_count() or 1)
        if self.trims and self.token_features:
            batches = batches.map(self._trim)
        return batches.prefetch(_BATCHES_AHEAD)

    def _share(self, rows: Tensors) -> Share:
        assert self.replicas is not None
        number = tf.shape(tf.nest.flatten(rows)[0], tf.int64)[0]
        begin, end = self.replicas.cut(number)
        own = tf.nest.map_structure(lambda tensor: tensor[begin:end], rows)
        return Share(self._parse(own), number)

    def _trim(self, *element: Tensors) -> Share | tuple[Tensors, ...]:
        share = element[0] if isinstance(element[0], Share) else None
        features, *rest = element if share is None else share.batch
        names = self.token_features
        batch = (trimmed(features, names, level_of(features, names)), *rest)
        return batch if share is None else share._replace(batch=batch)

    def _parsed(self, blocks: tf.data.Dataset) -> tf.data.Dataset:
        """Parse one block per call: a call per row would take several times as long."""
        parse = tf.autograph.experimental.do_not_convert(self._parse)
        return blocks.map(parse, num_parallel_calls=os.cpu_count() or 1)

    @property
    def _has_pictures(self) -> bool:
        return any(image.name in self.feature_spec for image in self.images)

    @property
    def _source(self) -> _RowSource:
        """The reader of the files' format."""
        stored = dict(self.feature_spec)
        for image in self.images:
            if image.name in stored:
                stored[image.name] = tf.io.FixedLenFeature([], tf.string)
        most_rows = block_rows(self.feature_spec)
        if self._has_pictures:  # every file or row group that is open holds blocks
            most_rows = max(1, most_rows // 8)
        parquet = [file for file in self.files if file.endswith(SUFFIX)]
        if not parquet:
            return TFRecordRows(self.files, stored, most_rows)
        if len(parquet) < len(self.files):
            other = next(file for file in self.files if not file.endswith(SUFFIX))
            raise ValueError(
                f"{parquet[0]} is a Parquet file and {other} is not: write all files of the "
                "examples in one format."
            )
        return ParquetRows(self.files, stored, most_rows)

    def _parse(self, rows: Tensors) -> tuple[Tensors, ...]:
        features = read_images(self._source.parse(rows), self.images)
        label = features.pop(self.label)
        if label.shape.rank == 1:
            label = label[:, tf.newaxis]  # like the model's outputs
        if self.label_scale is not None:
            label = self.label_scale.scaled(label)
        elif self.label_dtype is not None:
            label = tf.cast(label_numbers(label), self.label_dtype)
        if self.weight is None:
            return features, label
        return features, label, tf.reshape(features.pop(self.weight), [-1])


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    # At the end of an iterator, tf.data may wait for its autotuner's next cycle. Cycles are
    # 10 ms apart at first and double each time, so the wait can be as long as the epoch.
    options.autotune.enabled = False
    # The trainer shards: one global batch is one element here.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


@dataclasses.dataclass(frozen=True)
class DataSummary:
    """Summary of the training rows, from one pass over them."""

    rows: int
    label_min: float
    label_max: float
    label_is_whole: bool
    # Integer feature to (smallest id, number of ids up to the largest)
    id_sizes: dict[str, tuple[int, int]]
    label_moments: LabelMoments
    # Sum of row weights by whole label; None for labels that are not whole or have more than 10,000
    # values
    class_sums: dict[int, float] | None = None


def summarise(examples: Examples, *, id_features: Sequence[str] = ()) -> DataSummary:
    """Read the label, the weight and the given integer features of every row once."""
    narrow = examples.narrowed(id_features)
    rows, low, high, whole = 0, np.inf, -np.inf, True
    weight_sum = 0.0
    moments: LabelMoments | None = None
    ids: dict[str, tuple[int, int]] = {}
    sums: dict[int, float] | None = {}
    for features, label, *rest in narrow.batches(_SCAN_ROWS).as_numpy_iterator():
        if label.dtype.kind not in "fiu":
            raise ValueError(
                f"label={examples.label!r} has type {label.dtype}: encode it as numbers in "
                "Transform."
            )
        if not np.isfinite(label).all():
            raise ValueError(
                f"label={examples.label!r} is NaN or infinite in row "
                f"{rows + int(np.argwhere(~np.isfinite(label))[0][0])} of the training data: fill "
                "or drop such rows before Transform."
            )
        if rest:
            weight_sum += _weight_sum(rest[0], examples.weight)
        rows += len(label)
        seen = LabelMoments.of(label)
        moments = moments.merged(seen) if moments else seen
        low, high = min(low, label.min()), max(high, label.max())
        whole = whole and bool((label == np.floor(label)).all())
        if not whole or label.shape[1:] != (1,):
            sums = None
        elif sums is not None:
            sums = _class_sums(sums, label[:, 0], rest[0] if rest else None)
        for name in id_features:
            first, last = ids.get(name, (np.iinfo(np.int64).max, np.iinfo(np.int64).min))
            ids[name] = (
                min(first, int(features[name].min())),
                max(last, int(features[name].max())),
            )
    if rows == 0 or moments is None:
        raise ValueError(f"no training rows in {', '.join(examples.files[:3])}: check the split.")
    if low == high:
        raise ValueError(
            f"label={examples.label!r} is {low:g} in all {rows:,} training rows: there is "
            "nothing to learn; check how the label is derived."
        )
    if examples.weight and not weight_sum > 0:
        raise ValueError(f"weight={examples.weight!r} is 0 in all training rows.")
    sizes = {name: (first, last - first + 1) for name, (first, last) in ids.items()}
    return DataSummary(rows, float(low), float(high), whole, sizes, moments, sums)


def _class_sums(
    sums: dict[int, float], labels: np.ndarray, weights: np.ndarray | None
) -> dict[int, float] | None:
    values, places = np.unique(labels, return_inverse=True)
    found = np.bincount(places, None if weights is None else weights.astype(np.float64))
    sums = dict(sums)
    for value, more in zip(values.tolist(), found.tolist(), strict=True):
        sums[int(value)] = sums.get(int(value), 0.0) + more
    return sums if len(sums) <= _MOST_CLASSES else None


def _weight_sum(weights: np.ndarray, name: str | None) -> float:
    if not np.isfinite(weights).all() or (weights < 0).any():
        bad = weights[~np.isfinite(weights) | (weights < 0)][0]
        raise ValueError(f"weight={name!r} holds {bad}: weights are finite and at least 0.")
    return float(weights.sum())


def expand(patterns: Sequence[str], *, what: str) -> tuple[str, ...]:
    """Return the files that match glob patterns, sorted."""
    files: list[str] = []
    for pattern in patterns:
        found = sorted(tf.io.gfile.glob(pattern))
        if not found:
            raise ValueError(f"{what}: no file matches {pattern}.")
        files += found
    for file in files:
        if not file.endswith((SUFFIX, ".gz")) and is_parquet(file):
            raise ValueError(f"{what}: {file} is a Parquet file: end its name with {SUFFIX}.")
    return tuple(files)


def _shuffle_blocks(blocks: tf.data.Dataset, *, held_rows: int, seed: tf.Tensor) -> tf.data.Dataset:
    """Return the rows of blocks in random order, again in blocks, some of which may be empty.

    `held_rows` rows are held back. Each incoming block is mixed with them, and as many rows as it
    has, drawn at random from both, are returned. At the end the held rows follow, in random order.
    If all rows together are at most `held_rows` plus one block, all orders are equally likely.

    Args:
        blocks: Structures of tensors `[rows, ...]` with at least one row each; sizes may differ.
        held_rows: At least 0. Memory holds up to three times as many rows, and three blocks.
        seed: int64 scalar: the same seed gives the same order.
    """
    spec = blocks.element_spec
    specs = tf.nest.flatten(spec)
    nothing = [tf.zeros([0, *each.shape[1:]], each.dtype) for each in specs]
    empty = tf.nest.pack_sequence_as(spec, nothing)

    # tf.data prepares a dataset's function for each iterator, operation by operation: this
    # one has as few operations as possible.
    def mix(state: Tensors, block: Tensors) -> Tensors:
        held, number = state
        new = tf.nest.flatten(block)
        both = [tf.concat(pair, 0) for pair in zip(tf.nest.flatten(held), new, strict=True)]
        rows, at_end = tf.shape(both[0])[0], tf.shape(new[0])[0] == 0
        random = tf.raw_ops.StatelessRandomUniformFullInt(
            shape=[rows], seed=[seed, number], dtype=tf.int64
        )
        order = tf.math.top_k(random, rows).indices
        leave = tf.where(at_end, rows, tf.maximum(rows - held_rows, 0))
        go, stay = tf.split(order, [leave, rows - leave])
        return (gathered(both, stay), number + 1), gathered(both, go)

    def gathered(tensors: list[tf.Tensor], order: tf.Tensor) -> Tensors:
        found = [tf.gather(tensor, order) for tensor in tensors]
        for tensor, each in zip(found, specs, strict=True):
            tensor.set_shape([None, *each.shape[1:]])
        return tf.nest.pack_sequence_as(spec, found)

    ended = blocks.concatenate(tf.data.Dataset.from_tensors(empty))
    return ended.scan((empty, tf.constant(0, tf.int64)), mix)
