"""`preprocessing_fn`: the spec, applied to a batch of raw columns.

    derive -> select -> stack -> columns/numbers.py (clip, impute, scale) -> pack
                            `-> encode/table.py: each encoder's columns -> pack
                            `-> its crosses -> pack

One analyzer for the statistics of all scaled columns, one for medians and quantiles where any
column wants them, one for most frequent values, one per number of buckets, one per vocabulary, one
that counts the values of all encoded columns, one for the label. None of them depends on another's
result, so the analysis reads the data once: a second phase would cost another pass over it, and
fails under TFX with recent versions of Beam (tensorflow_transform/beam/deep_copy.py does not know
Beam's signatures).

`_pack` makes the outputs, and says where each column went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from shared_core.feature_layout import (
    ASSET,
    MISSING_BITS,
    PACKED_FLOAT,
    PACKED_INT,
    PACKED_MISSING,
    Column,
    FeatureLayout,
    ImageFeature,
    LayoutLabel,
    TokenFeature,
)
from transform import compat
from transform.analyzers.counts import with_counts
from transform.block import Block, Columns, ColumnTensor, Entry, IdCount, Separate, joined
from transform.columns.derive import derived_columns, refuse_leaks
from transform.columns.inputs import DenseColumns, batch_size, split_lists, tensor_type
from transform.columns.numbers import scaled
from transform.encode.encoder import Inputs
from transform.encode.label import label_output, weight_output
from transform.encode.lookup import vocabulary_names
from transform.encode.table import ENCODERS, cross_texts, crossed, encoded
from transform.resolve.output_columns import OutputColumn, all_output_columns
from transform.resolve.select import reads_texts, resolve, step_of, takes_lists
from transform.spec.common import SeenTypes
from transform.spec.features import FeatureSpec
from transform.spec.group import ResolvedGroup


def preprocessing_fn(inputs: Columns, custom_config: Mapping[str, Any]) -> dict[str, ColumnTensor]:
    """Return the columns that `tfx.components.Transform` writes.

    Args:
        inputs: raw columns, `[batch]` or `[batch, 1]` Tensors, or SparseTensors.
        custom_config: `{"features": <FeatureSpec as a dict>}`; other keys are ignored.

    Returns:
        `packed_float` float32 `[batch, n]`, `packed_int` int64 `[batch, m]`, `packed_missing`
        int64 `[batch, ceil(p / 32)]`, images and token ids under their columns' names, string
        `[batch]` and int64 `[batch, (tokens)]`, the label, the weight and what is passed through. A
        packed output without columns is left out. With `packed: false`, one float32 or int64
        `[batch, 1]` per column in their place.

    Raises:
        ValueError: the spec is invalid, or does not fit the columns.
    """
    if not custom_config or "features" not in custom_config:
        raise ValueError(
            'Transform got no feature specification; give custom_config={"features": {...}}'
        )
    return _apply_spec(FeatureSpec.model_validate(custom_config["features"]), inputs)


def _apply_spec(spec: FeatureSpec, inputs: Columns) -> dict[str, ColumnTensor]:
    """Return the columns of a parsed spec; see `preprocessing_fn`."""
    columns = dict(inputs)
    if spec.derive is not None:
        columns.update(derived_columns(spec.derive, inputs))
    types = {name: tensor_type(tensor) for name, tensor in columns.items()}
    groups = resolve(spec, types)

    groups, columns = split_lists(groups, columns)
    used = list(dict.fromkeys(name for each in (*groups, *spec.crosses) for name in each.columns))
    declared = set(spec.label.sources) if spec.label is not None else set()
    refuse_leaks([n for n in used if n not in inputs], columns, inputs, declared)

    scaled_columns = {n for r in groups if r.group.encode is None for n in r.columns}
    blocks, separate = _blocks(spec, groups, columns, types)
    blocks = with_counts(blocks, counted=scaled_columns)
    packed = _pack(spec, all_output_columns(spec, groups), blocks)
    passed = {name: columns[name] for name in spec.passthrough}
    outputs: dict[str, ColumnTensor] = {**packed.outputs, **passed}
    label = None
    if spec.label is not None:
        target = label_output(columns, spec.label)
        outputs[spec.label.column] = target.values
        classes = target.classes
        if spec.label.kind == "multiclass":  # known after the analysis: it is in the schema
            compat.set_int_domain(target.values, classes)
            classes = None
        label = LayoutLabel(
            name=spec.label.column,
            kind=spec.label.kind,
            classes=classes,
            positive=spec.label.positive,
        )
    if spec.weight is not None:
        outputs[spec.weight] = weight_output(columns, spec.weight)
    for each in separate:
        for name, values in {each.feature.name: each.values, **each.beside}.items():
            if name in outputs:
                raise ValueError(
                    f"column {each.feature.source!r} becomes the feature {name!r}, and another "
                    "output has this name; rename the column"
                )
            outputs[name] = values
        if each.ids is not None:
            compat.set_int_domain(each.values.values, each.ids)

    layout = FeatureLayout(
        columns=packed.columns,
        missing=packed.missing,
        label=label,
        weight=spec.weight,
        images=tuple(e.feature for e in separate if isinstance(e.feature, ImageFeature)),
        tokens=tuple(e.feature for e in separate if isinstance(e.feature, TokenFeature)),
        passthrough=(*spec.passthrough, *(name for each in separate for name in each.beside)),
        features=spec.model_dump(mode="json", exclude_defaults=True),
    )
    _write_layout(layout, batch_size(columns[[*used, *spec.passthrough][0]]))
    return outputs


def _blocks(
    spec: FeatureSpec,
    groups: Sequence[ResolvedGroup],
    columns: Columns,
    types: SeenTypes,
) -> tuple[list[Block], list[Separate]]:
    """Return all output columns, kind by kind, and the outputs that are not packed."""
    dense = _dense(spec, groups, columns, types)
    inputs = Inputs(dense, columns, types, vocabulary_names(_with_files(spec, groups)))
    numbers = scaled([each for each in groups if each.group.encode is None], dense)
    found = encoded(groups, inputs)
    ids = [each for each in found if isinstance(each, Block)]
    separate = [each for each in found if isinstance(each, Separate)]
    return [*numbers, *ids, *crossed(spec.crosses, inputs, ids)], separate


def _with_files(spec: FeatureSpec, groups: Sequence[ResolvedGroup]) -> list[str]:
    """Return columns and crosses that may have a vocabulary, encoder by encoder.

    Of a group with `share: true`, the first column stands for all.
    """
    owners = [
        name
        for encoder in ENCODERS.values()
        if encoder.names_file
        for resolved in groups
        if resolved.group.encode is not None and resolved.group.kind == encoder.name
        for name in resolved.columns[: 1 if resolved.group.share else None]
    ]
    crosses = [each.name for each in spec.crosses if ENCODERS[each.encode.kind].names_file]
    return [*owners, *crosses]


def _dense(
    spec: FeatureSpec,
    groups: Sequence[ResolvedGroup],
    columns: Columns,
    types: SeenTypes,
) -> DenseColumns:
    """Return all single-valued columns of the groups, those of one kind side by side."""
    by_kind: dict[str, list[ResolvedGroup]] = {}
    for resolved in groups:
        kind = resolved.group.kind if resolved.group.encode is not None else "scale"
        by_kind.setdefault(kind, []).append(resolved)
    numbers: list[str] = []
    texts: list[str] = []
    called: dict[str, str] = {}
    for resolved in (each for members in by_kind.values() for each in members):
        if takes_lists(resolved.group):
            continue
        # No quotes: TensorFlow shows them escaped.
        step = f"group {resolved.group.name}, {step_of(resolved.group)}"
        for name in resolved.columns:
            is_text = reads_texts(resolved.group, types.get(name, "float"))
            (texts if is_text else numbers).append(name)
            called[name] = f"{name} ({step})"
    texts = list(dict.fromkeys([*texts, *cross_texts(spec.crosses, types)]))
    return DenseColumns(columns, numbers=numbers, texts=texts, called=called)


def _write_layout(layout: FeatureLayout, rows: tf.Tensor) -> None:
    """Write the layout's JSON as a vocabulary with one entry: TFT's public way for a text."""
    once_per_batch = tf.fill([tf.minimum(rows, 1)], layout.to_json())
    tft.vocabulary(once_per_batch, vocab_filename=ASSET)


class _Packed(NamedTuple):
    """The outputs, and the fields of `FeatureLayout` that describe them."""

    outputs: dict[str, tf.Tensor]
    columns: tuple[Column, ...]
    missing: str | None


class _Named(NamedTuple):
    """A column of a block, on its way into the spec's order."""

    source: str
    size: IdCount | None
    entry: Entry | None


def _pack(spec: FeatureSpec, wanted: Sequence[OutputColumn], blocks: Sequence[Block]) -> _Packed:
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
        return _Packed(outputs, columns, None)
    outputs[PACKED_MISSING] = _pack_bits(_arrange(missing, missing_names, list(order)))
    return _Packed(outputs, columns, PACKED_MISSING)


def _pack_bits(bits: tf.Tensor) -> tf.Tensor:
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
    values = joined(tensors)
    if list(names) == list(wanted):
        return values
    index = {name: i for i, name in enumerate(names)}
    return tf.gather(values, [index[name] for name in wanted], axis=1)


def _one_by_one(
    values: tf.Tensor, names: Sequence[str], blocks: Sequence[Block]
) -> dict[str, tf.Tensor]:
    """Return `[batch, 1]` per column; ids carry their range in the transformed schema."""
    sizes: dict[str, IdCount | None] = {}
    for block in blocks:
        sizes |= dict(zip(block.names, block.sizes, strict=True))
    outputs = dict(zip(names, tf.split(values, len(names), axis=1), strict=True))
    for name, column in outputs.items():
        if (size := sizes[name]) is not None:
            compat.set_int_domain(column, size.total)
    return outputs
