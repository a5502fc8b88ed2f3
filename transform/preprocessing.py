"""`preprocessing_fn`: the spec, applied to a batch of raw columns.

    derive -> select -> stack -> scale/numbers.py (clip, impute, scale) -> pack
                            `-> encode/table.py: each encoder's file -> pack
                            `-> crosses.py -> pack

One analyzer for the statistics of all scaled columns, one for medians and quantiles where any
column wants them, one for most frequent values, one per column of keys, one per number of buckets,
one per vocabulary, one that counts the values of all encoded columns, one for the label. None of
them depends on another's result, so the analysis reads the data once: a second phase would cost
another pass over it, and fails under TFX with recent versions of Beam
(tensorflow_transform/beam/deep_copy.py does not know Beam's signatures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from shared_core.feature_layout import ASSET, FeatureLayout, LayoutLabel
from transform import compat
from transform.aliases import Columns, ColumnTensor
from transform.analyzers.present import with_counts
from transform.block import Block
from transform.columns.derive import derived_columns, refuse_leaks
from transform.columns.fixed_lists import split_lists
from transform.columns.inputs import DenseColumns, batch_size, tensor_type
from transform.columns.types import ResolvedGroup, SeenTypes
from transform.encode.crosses import cross, cross_texts, float_buckets
from transform.encode.encoder import Inputs
from transform.encode.label import label_output, weight_output
from transform.encode.lookup import vocabulary_names
from transform.encode.table import ENCODERS, encoded
from transform.output.pack import pack
from transform.resolve.kinds import reads_texts, step_of, takes_lists
from transform.resolve.output_columns import all_output_columns
from transform.resolve.select import resolve
from transform.spec.features import FeatureSpec
from transform.steps.numbers import scaled


def preprocessing_fn(inputs: Columns, custom_config: Mapping[str, Any]) -> dict[str, ColumnTensor]:
    """Return the columns that `tfx.components.Transform` writes.

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
    from transform.restarts import load_graphs_by_folder  # and with it Beam

    load_graphs_by_folder()  # TFT has not built its steps when it calls this
    if not custom_config or "features" not in custom_config:
        raise ValueError(
            'Transform got no feature specification; give custom_config={"features": {...}}'
        )
    return apply_spec(FeatureSpec.model_validate(custom_config["features"]), inputs)


def apply_spec(spec: FeatureSpec, inputs: Columns) -> dict[str, ColumnTensor]:
    """Return the columns of a parsed spec; see `preprocessing_fn`."""
    columns = dict(inputs)
    if spec.derive is not None:
        columns.update(derived_columns(spec.derive, inputs))
    types = {name: tensor_type(tensor) for name, tensor in columns.items()}
    groups = resolve(spec, types)

    groups, columns = split_lists(groups, columns)
    used = _used_columns(spec, groups)
    declared = set(spec.label.sources) if spec.label is not None else set()
    refuse_leaks([n for n in used if n not in inputs], columns, inputs, declared)

    scaled_columns = {n for r in groups if r.group.encode is None for n in r.columns}
    blocks = with_counts(_blocks(spec, groups, columns, types), counted=scaled_columns)
    packed = pack(spec, all_output_columns(spec, groups), blocks)
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

    layout = FeatureLayout(
        columns=packed.columns,
        missing=packed.missing,
        label=label,
        weight=spec.weight,
        passthrough=spec.passthrough,
        features=spec.model_dump(mode="json", exclude_defaults=True),
    )
    _write_layout(layout, batch_size(columns[[*used, *spec.passthrough][0]]))
    return outputs


def _used_columns(spec: FeatureSpec, groups: Sequence[ResolvedGroup]) -> list[str]:
    """Return columns that any feature is made of, each once."""
    names = [name for resolved in groups for name in resolved.columns]
    names += [group.by for group in spec.groups if group.by is not None]
    names += [name for each in spec.crosses for name in each.columns]
    return list(dict.fromkeys(names))


def _blocks(
    spec: FeatureSpec,
    groups: Sequence[ResolvedGroup],
    columns: Columns,
    types: SeenTypes,
) -> list[Block]:
    """Return all output columns, kind by kind."""
    dense = _dense(spec, groups, columns, types)
    inputs = Inputs(dense, columns, types, vocabulary_names(_with_files(spec, groups)))
    numbers = scaled([each for each in groups if each.group.encode is None], dense)
    ids = encoded(groups, inputs)
    buckets = float_buckets(spec.crosses, types, ids)
    return [*numbers, *ids, *cross(inputs, spec.crosses, buckets)]


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
    keys = [group.by for group in spec.groups if group.by is not None]
    more = [*keys, *cross_texts(spec.crosses, types)]
    texts = list(dict.fromkeys([*texts, *more]))
    return DenseColumns(columns, numbers=numbers, texts=texts, called=called)


def _write_layout(layout: FeatureLayout, rows: tf.Tensor) -> None:
    """Write the layout's JSON among the assets of the transform graph.

    As a vocabulary with one entry: the one channel of TFT's public interface through which a
    text reaches the artifact on every Beam runner.
    """
    once_per_batch = tf.fill([tf.minimum(rows, 1)], layout.to_json())
    tft.vocabulary(once_per_batch, vocab_filename=ASSET)
