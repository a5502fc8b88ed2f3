"""Columns -> packed outputs, and where each column went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from transform import compat
from transform.block import Block, Entry, IdCount
from shared_core.feature_layout import MISSING_BITS, PACKED_FLOAT, PACKED_INT, PACKED_MISSING, Column
from transform.resolve.output_columns import OutputColumn
from transform.spec.features import FeatureSpec


class Packed(NamedTuple):
    """The outputs, and the fields of `FeatureLayout` that describe them."""

    outputs: dict[str, tf.Tensor]
    columns: tuple[Column, ...]
    missing: str | None


class _Named(NamedTuple):
    """A column of a block, on its way into the spec's order."""

    source: str
    size: IdCount | None
    entry: Entry | None


def pack(spec: FeatureSpec, wanted: Sequence[OutputColumn], blocks: Sequence[Block]) -> Packed:
    """Pack the columns in the order of `wanted`, one output per dtype."""
    order = {column.name: column for column in wanted}
    outputs: dict[str, tf.Tensor] = {}
    placed: dict[str, Column] = {}
    missing: list[tf.Tensor] = []
    missing_names: list[str] = []
    for output, dtype in ((PACKED_FLOAT, tf.float32), (PACKED_INT, tf.int64)):
        members = [block for block in blocks if block.values.dtype == dtype]
        if not members:
            continue
        names = [name for block in members for name in block.names]
        mine = frozenset(names)
        in_order = [name for name in order if name in mine]
        values = _arrange([block.values for block in members], names, in_order)
        columns = _columns(members, in_order, order, output if spec.packed else None)
        placed |= columns
        missing.append(_arrange([block.missing for block in members], names, in_order))
        missing_names += in_order
        if spec.packed:
            outputs[output] = values
        else:
            outputs |= _one_by_one(values, in_order, members)
    columns = tuple(placed[name] for name in order)
    if not (spec.packed and spec.missing_mask and columns):
        return Packed(outputs, columns, None)
    outputs[PACKED_MISSING] = pack_bits(_arrange(missing, missing_names, list(order)))
    return Packed(outputs, columns, PACKED_MISSING)


def pack_bits(bits: tf.Tensor) -> tf.Tensor:
    """Pack bool `[batch, p]` as int64 `[batch, ceil(p / 32)]`: bit `i % 32` of word `i // 32`."""
    p = bits.shape[1]
    words = -(-p // MISSING_BITS)
    padded = tf.pad(tf.cast(bits, tf.int64), [[0, 0], [0, words * MISSING_BITS - p]])
    weights = np.left_shift(np.int64(1), np.arange(MISSING_BITS, dtype=np.int64))
    packed = tf.reduce_sum(tf.reshape(padded, [-1, words, MISSING_BITS]) * weights, axis=2)
    return tf.ensure_shape(packed, [None, words])


def _columns(
    blocks: Sequence[Block],
    wanted: Sequence[str],
    order: Mapping[str, OutputColumn],
    output: str | None,
) -> dict[str, Column]:
    """Return the layout's entries; `output` None: each column is a separate output."""
    named: dict[str, _Named] = {}
    for block in blocks:
        entries = block.entries or (None,) * len(block.names)
        described = map(_Named, block.sources, block.sizes, entries)
        named |= dict(zip(block.names, described, strict=True))
    columns = {}
    for position, name in enumerate(wanted):
        size, entry = named[name].size, named[name].entry
        rule = order[name].validation_rule
        columns[name] = Column(
            name=name,
            source=named[name].source,
            group=order[name].group,
            kind=order[name].kind,
            output=output or name,
            position=position if output else 0,
            vocabulary_size=size.total if size and isinstance(size.total, int) else None,
            vocabulary=size.vocabulary if size else None,
            extra_ids=size.extra_ids if size else 0,
            entry_of=entry.vocabulary if entry else None,
            entry=entry.line if entry else None,
            validation_rule=rule.name if rule else None,
            bounds=dict(rule.bounds) if rule and rule.bounds else None,
            is_aspect=order[name].is_aspect,
            shared_ids=order[name].shared_ids,
        )
    return columns


def _arrange(
    tensors: Sequence[tf.Tensor], names: Sequence[str], wanted: Sequence[str]
) -> tf.Tensor:
    """Concatenate columns called `names` and bring them into the order `wanted`."""
    joined = tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis=1)
    if list(names) == list(wanted):
        return joined
    index = {name: i for i, name in enumerate(names)}
    return tf.gather(joined, [index[name] for name in wanted], axis=1)


def _one_by_one(values: tf.Tensor, names: Sequence[str], blocks: Sequence[Block]) -> dict[str, tf.Tensor]:
    """Return `[batch, 1]` per column; ids carry their range in the transformed schema."""
    sizes: dict[str, IdCount | None] = {}
    for block in blocks:
        sizes |= dict(zip(block.names, block.sizes, strict=True))
    outputs = dict(zip(names, tf.split(values, len(names), axis=1), strict=True))
    for name, column in outputs.items():
        if (size := sizes[name]) is not None:
            compat.set_int_domain(column, size.total)
    return outputs
