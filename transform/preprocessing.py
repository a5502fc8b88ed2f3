"""`preprocessing_fn`: the spec, applied to a batch of raw columns.

    derive -> select -> stack -> clip -> analyze -> clip by quantiles -> impute -> scale -> pack
                                            `-> encode -> pack

One analyzer for the statistics of all scaled columns, one for medians and quantiles where any
column wants them, one per number of buckets, one per vocabulary, one for the label. None of them
depends on another's result, so the analysis reads the data once: a second phase would cost another
pass over it, and fails under TFX with recent versions of Beam (tensorflow_transform/beam/
deep_copy.py does not know Beam's signatures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from transform import compat
from transform.derive import derived_columns, raw_sources, refuse_leaks
from transform.encode import encode
from transform.impute import clip, fill_values, limit
from transform.inputs import DenseColumns, batch_size, tensor_type
from transform.label import label_output, weight_output
from transform.layout import ASSET, FeatureLayout, LayoutLabel
from transform.one_hot import one_hot
from transform.order import order_statistics
from transform.pack import Block, pack
from transform.scale import scale
from transform.select import INDICATOR_SUFFIX, TEXT_KINDS, ResolvedGroup, resolve
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

    scaled = [g for g in groups if g.group.encode is None]
    encoded = [g for g in groups if g.group.encode is not None]
    hot = [g for g in encoded if g.group.kind == "one_hot"]
    ids = [g for g in encoded if g.group.kind != "one_hot"]
    dense = _dense([*scaled, *encoded], columns)
    blocks = [*_scaled(scaled, dense), *_encoded(ids, dense)]
    if hot:
        blocks.append(one_hot(dense, hot))
    packed = pack(spec, groups, blocks)
    passed = {name: columns[name] for name in spec.passthrough}
    outputs: dict[str, Any] = {**packed.outputs, **passed}

    label = None
    if spec.label is not None:
        target = label_output(columns, spec.label)
        outputs[spec.label.column] = target.values
        classes = target.classes
        if spec.label.kind == "multiclass":  # known after the analysis: it is in the schema
            compat.set_int_domain(target.values, classes)
            classes = None
        label = LayoutLabel(name=spec.label.column, kind=spec.label.kind, classes=classes)
    if spec.weight is not None:
        outputs[spec.weight] = weight_output(columns, spec.weight)

    layout = FeatureLayout(
        columns=packed.columns,
        missing=packed.missing,
        label=label,
        weight=spec.weight,
        label_sources=_label_sources(spec, used, columns, inputs),
    )
    _write_layout(layout, batch_size(columns[[*used, *spec.passthrough][0]]))
    return outputs


def _dense(groups: Sequence[ResolvedGroup], columns: Mapping[str, Any]) -> DenseColumns:
    """All columns of the groups, those of one kind side by side."""
    of_kind: dict[str, list[str]] = {}
    for resolved in groups:
        kind = resolved.group.encode.kind if resolved.group.encode is not None else "scale"
        of_kind.setdefault(kind, []).extend(resolved.columns)
    texts = [name for kind in of_kind if kind in TEXT_KINDS for name in of_kind[kind]]
    numbers = [name for kind in of_kind if kind not in TEXT_KINDS for name in of_kind[kind]]
    return DenseColumns(columns, numbers=numbers, texts=texts)


def _scaled(groups: Sequence[ResolvedGroup], columns: DenseColumns) -> list[Block]:
    """Scaled columns, and after them the missing indicators of the groups that want them."""
    if not groups:
        return []
    names = tuple(name for resolved in groups for name in resolved.columns)
    owners = [resolved.group for resolved in groups for _ in resolved.columns]
    x = clip(columns.numbers(names), [group.clip for group in owners])
    missing = tf.math.is_nan(x)
    statistics = column_statistics(x)
    order = order_statistics(x, owners)
    if any(group.clips_by_quantiles for group in owners):
        x = limit(x, order.low, order.high)
        statistics = statistics.limited(order.low, order.high)
    filled = tf.where(missing, fill_values(owners, statistics, order), x)
    scaled = scale(filled, [group.scale or "none" for group in owners], statistics, order)
    blocks = [Block(names, _to_float32(scaled), names, missing, (None,) * len(names))]
    marked = [i for i, group in enumerate(owners) if group.missing_indicator]
    if marked:
        sources = tuple(names[i] for i in marked)
        bits = missing if len(marked) == len(names) else tf.gather(missing, marked, axis=1)
        indicators = tuple(source + INDICATOR_SUFFIX for source in sources)
        values = tf.cast(bits, tf.float32)
        blocks.append(Block(indicators, values, sources, bits, (None,) * len(marked)))
    return blocks


def _to_float32(x: tf.Tensor) -> tf.Tensor:
    """float64 -> float32; what float32 cannot hold becomes its largest value, never infinite."""
    limit = np.finfo(np.float32).max.astype(np.float64)
    return tf.cast(tf.clip_by_value(x, -limit, limit), tf.float32)


def _encoded(groups: Sequence[ResolvedGroup], columns: DenseColumns) -> list[Block]:
    if not groups:
        return []
    return [Block(e.names, e.ids, e.names, e.missing, e.sizes) for e in encode(columns, groups)]


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
    """Raw columns that label and weight need and no feature does: absent at serving."""
    targets = [spec.label.column] if spec.label is not None else []
    targets += [spec.weight] if spec.weight is not None else []
    found = set(spec.label.sources) if spec.label is not None else set()
    found |= raw_sources([columns[name] for name in targets], inputs)
    if found:
        found -= raw_sources([columns[name] for name in used], inputs)
    return tuple(name for name in inputs if name in found)
