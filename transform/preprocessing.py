"""`preprocessing_fn`: the spec, applied to a batch of raw columns.

    derive -> select -> stack -> clip -> analyze -> impute -> scale | encode -> pack

One analyzer for the statistics of all scaled columns, one per number of buckets, one per
vocabulary, one for the label. None of them depends on another's result, so the analysis reads
the data once: a second phase would cost another pass over it, and fails under TFX with recent
versions of Beam (tensorflow_transform/beam/deep_copy.py does not know Beam's signatures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from transform import compat
from transform.derive import derived_columns, raw_sources, refuse_leaks
from transform.encode import IdCount, encode
from transform.impute import clip, fill_values
from transform.inputs import batch_size, stack_numbers, tensor_type
from transform.label import label_output, weight_output
from transform.layout import (
    ASSET,
    MISSING_BITS,
    PACKED_FLOAT,
    PACKED_INT,
    PACKED_MISSING,
    Column,
    FeatureLayout,
    LayoutLabel,
)
from transform.scale import scale
from transform.select import INDICATOR_SUFFIX, ResolvedGroup, resolve
from transform.spec import FeatureSpec
from transform.statistics import column_statistics


def preprocessing_fn(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, Any]:
    """The `preprocessing_fn` of `tfx.components.Transform`.

    Args:
        inputs: raw columns, `[batch]` or `[batch, 1]` Tensors, or SparseTensors.
        custom_config: `{"features": <FeatureSpec as a dict>}`; other keys are ignored.

    Returns:
        `packed_float` float32 `[batch, n]`, `packed_int` int64 `[batch, m]`, `packed_missing`
        int64 `[batch, ceil(p / 32)]`, the label, the weight and what is passed through. A packed
        output without columns is left out. With `packed: false`, one float32 or int64
        `[batch, 1]` per column in their place.

    Raises:
        ValueError: the spec is invalid, or does not fit the columns.
    """
    if not custom_config or "features" not in custom_config:
        raise ValueError(
            'Transform got no feature specification; give custom_config={"features": {...}}'
        )
    return apply_spec(FeatureSpec.model_validate(custom_config["features"]), inputs)


def apply_spec(spec: FeatureSpec, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """`preprocessing_fn` for a parsed spec."""
    columns = dict(inputs)
    if spec.derive is not None:
        columns.update(derived_columns(spec.derive, inputs))
    groups = resolve(spec, {name: tensor_type(tensor) for name, tensor in columns.items()})

    used = [name for resolved in groups for name in resolved.columns]
    declared = set(spec.label.sources) if spec.label is not None else set()
    refuse_leaks([n for n in used if n not in inputs], columns, inputs, declared)

    blocks = [
        *_scaled([g for g in groups if g.group.encode is None], columns),
        *_encoded([g for g in groups if g.group.encode is not None], columns),
    ]
    outputs, layout = _assemble(spec, groups, blocks)
    for name in spec.passthrough:
        outputs[name] = columns[name]
    if spec.label is not None:
        label = label_output(columns, spec.label)
        outputs[spec.label.column] = label.values
        known = label.classes if isinstance(label.classes, int) else None
        layout["label"] = LayoutLabel(name=spec.label.column, kind=spec.label.kind, classes=known)
        if spec.label.kind == "multiclass":
            compat.set_int_domain(label.values, label.classes)
    if spec.weight is not None:
        outputs[spec.weight] = weight_output(columns, spec.weight)
        layout["weight"] = spec.weight
    layout["label_sources"] = _label_sources(spec, used, columns, inputs)
    _write_layout(FeatureLayout(**layout), batch_size(columns[(*used, *spec.passthrough)[0]]))
    return outputs


class _Block(NamedTuple):
    """Output columns of one dtype, side by side, in any order."""

    names: tuple[str, ...]
    values: tf.Tensor  # float32 or int64 [batch, n]
    sources: tuple[str, ...]
    missing: tf.Tensor  # bool [batch, n]: of the sources
    sizes: tuple[IdCount | None, ...]  # None for floats


def _scaled(groups: Sequence[ResolvedGroup], columns: Mapping[str, Any]) -> list[_Block]:
    """Scaled columns, and after them the missing indicators of the groups that want them."""
    if not groups:
        return []
    names = tuple(name for resolved in groups for name in resolved.columns)
    owners = [resolved.group for resolved in groups for _ in resolved.columns]
    x = clip(stack_numbers(columns, names), [group.clip for group in owners])
    missing = tf.math.is_nan(x)
    statistics = column_statistics(x)
    filled = tf.where(missing, fill_values(owners, statistics), x)
    scaled = scale(filled, [group.scale or "none" for group in owners], statistics)
    blocks = [_Block(names, _to_float32(scaled), names, missing, (None,) * len(names))]
    marked = [i for i, group in enumerate(owners) if group.missing_indicator]
    if marked:
        sources = tuple(names[i] for i in marked)
        bits = missing if len(marked) == len(names) else tf.gather(missing, marked, axis=1)
        indicators = tuple(source + INDICATOR_SUFFIX for source in sources)
        values = tf.cast(bits, tf.float32)
        blocks.append(_Block(indicators, values, sources, bits, (None,) * len(marked)))
    return blocks


def _to_float32(x: tf.Tensor) -> tf.Tensor:
    """float64 -> float32; what float32 cannot hold becomes its largest value, never infinite."""
    limit = np.finfo(np.float32).max.astype(np.float64)
    return tf.cast(tf.clip_by_value(x, -limit, limit), tf.float32)


def _encoded(groups: Sequence[ResolvedGroup], columns: Mapping[str, Any]) -> list[_Block]:
    if not groups:
        return []
    return [_Block(e.names, e.ids, e.names, e.missing, e.sizes) for e in encode(columns, groups)]


class _Assembled(NamedTuple):
    outputs: dict[str, Any]
    layout: dict[str, Any]  # fields of FeatureLayout


def _assemble(
    spec: FeatureSpec, groups: Sequence[ResolvedGroup], blocks: Sequence[_Block]
) -> _Assembled:
    """Orders the columns as the spec does, and packs them."""
    floats = [block for block in blocks if block.values.dtype == tf.float32]
    ints = [block for block in blocks if block.values.dtype == tf.int64]
    order = _output_order(groups)
    entries: dict[str, Column] = {}
    sizes: dict[str, IdCount | None] = {}
    outputs: dict[str, Any] = {}
    missing: list[tf.Tensor] = []
    missing_names: list[str] = []
    kinds = {name: (group, kind) for name, group, kind in order}
    for packed_name, members in ((PACKED_FLOAT, floats), (PACKED_INT, ints)):
        if not members:
            continue
        names = [name for block in members for name in block.names]
        wanted = [name for name, _, _ in order if name in set(names)]
        values = _arrange([block.values for block in members], names, wanted)
        missing.append(_arrange([block.missing for block in members], names, wanted))
        missing_names += wanted
        sources = {
            n: s for block in members for n, s in zip(block.names, block.sources, strict=True)
        }
        sizes |= {n: s for block in members for n, s in zip(block.names, block.sizes, strict=True)}
        for position, name in enumerate(wanted):
            group, kind = kinds[name]
            size = sizes[name]
            entries[name] = Column(
                name=name,
                source=sources[name],
                group=group,
                kind=kind,
                output=packed_name if spec.packed else name,
                position=position if spec.packed else 0,
                vocabulary_size=size.total if size and isinstance(size.total, int) else None,
                vocabulary=size.vocabulary if size else None,
                extra_ids=size.extra_ids if size else 0,
            )
        if spec.packed:
            outputs[packed_name] = values
        else:
            outputs |= _unpacked(values, wanted, sizes)

    columns = tuple(entries[name] for name, _, _ in order)
    layout: dict[str, Any] = {"columns": columns}
    if spec.packed and spec.missing_mask and columns:
        bits = _arrange(missing, missing_names, [column.name for column in columns])
        outputs[PACKED_MISSING] = pack_bits(bits)
        layout["missing"] = PACKED_MISSING
    return _Assembled(outputs, layout)


def _output_order(groups: Sequence[ResolvedGroup]) -> list[tuple[str, str, str]]:
    """(name, group, kind) of every output column, in the spec's order."""
    order = []
    for resolved in groups:
        group = resolved.group
        order += [(name, group.name, group.kind) for name in resolved.columns]
        if group.missing_indicator:
            order += [
                (name + INDICATOR_SUFFIX, group.name, "missing_indicator")
                for name in resolved.columns
            ]
    return order


def _arrange(
    tensors: Sequence[tf.Tensor], names: Sequence[str], wanted: Sequence[str]
) -> tf.Tensor:
    """Concatenates columns called `names` and brings them into the order `wanted`."""
    joined = tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis=1)
    if list(names) == list(wanted):
        return joined
    index = {name: i for i, name in enumerate(names)}
    return tf.gather(joined, [index[name] for name in wanted], axis=1)


def _unpacked(
    values: tf.Tensor, names: Sequence[str], sizes: Mapping[str, IdCount | None]
) -> dict[str, tf.Tensor]:
    outputs = {}
    for name, column in zip(names, tf.split(values, len(names), axis=1), strict=True):
        outputs[name] = column
        if (count := sizes[name]) is not None:
            compat.set_int_domain(column, count.total)
    return outputs


def pack_bits(bits: tf.Tensor) -> tf.Tensor:
    """bool `[batch, p]` -> int64 `[batch, ceil(p / 32)]`; bit `i % 32` of word `i // 32`."""
    p = bits.shape[1]
    words = -(-p // MISSING_BITS)
    padded = tf.pad(tf.cast(bits, tf.int64), [[0, 0], [0, words * MISSING_BITS - p]])
    weights = np.left_shift(np.int64(1), np.arange(MISSING_BITS, dtype=np.int64))
    packed = tf.reduce_sum(tf.reshape(padded, [-1, words, MISSING_BITS]) * weights, axis=2)
    return tf.ensure_shape(packed, [None, words])


def _write_layout(layout: FeatureLayout, rows: tf.Tensor) -> None:
    """Writes the layout's JSON among the assets of the transform graph.

    As a vocabulary with one entry: the one channel of TFT's public interface through which a
    text reaches the artifact on every Beam runner.
    """
    once_per_batch = tf.fill([tf.minimum(rows, 1)], layout.to_json())
    tft.vocabulary(once_per_batch, vocab_filename=ASSET)


def _label_sources(
    spec: FeatureSpec,
    used: Sequence[str],
    columns: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> tuple[str, ...]:
    """Raw columns that only label and weight are computed from: absent at serving."""
    targets = [spec.label.column] if spec.label is not None else []
    targets += [spec.weight] if spec.weight is not None else []
    found = set(spec.label.sources) if spec.label is not None else set()
    found |= raw_sources([columns[name] for name in targets], inputs)
    if found:
        found -= raw_sources([columns[name] for name in (*used, *spec.passthrough)], inputs)
    return tuple(name for name in inputs if name in found)
