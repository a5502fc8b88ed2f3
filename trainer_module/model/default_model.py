"""The default models: embeddings of ids and texts, networks of pictures and tokens, then layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import keras

from shared_core.feature_layout import Column, FeatureLayout
from trainer_module.data.text_bags import WEIGHT, other_places, text_bags
from trainer_module.model.image_and_token_models import pooled_features
from trainer_module.model.layers import Hinges, PackedEmbedding, PooledEmbedding, PrunedDense
from trainer_module.model.model_context import ModelContext
from trainer_module.options.task_options import ModelConfig

# Kinds of float columns that are 0 or 1, points on a circle, or unscaled: no hinges.
_NO_HINGES = frozenset({"one_hot", "multi_hot", "missing_indicator", "cyclic", "none", WEIGHT})
_ACTIVATIONS = {"binary": "sigmoid", "multiclass": "softmax", "regression": None}
_MASK_UPDATES = 20  # of a pruned layer, in a run


def default_model(context: ModelContext) -> keras.Model:
    """Return the default model of `model.kind`: vectors of all features, then hidden layers."""
    config = context.config.model
    inputs: dict[str, keras.KerasTensor] = {}
    floats: list[keras.KerasTensor] = []
    bent: list[keras.KerasTensor] = []
    ids: list[keras.KerasTensor] = []
    ranges: list[tuple[int, int]] = []
    shared: list[str | None] = []
    bags = text_bags(context.layout)
    flat: dict[str, keras.KerasTensor] = {}
    for tensor, vectors in pooled_features(context):
        inputs[tensor.name] = tensor
        floats.append(vectors)
    for name, feature in context.feature_spec.items():
        if name in inputs:
            continue
        width = math.prod(feature.shape)
        if feature.dtype.is_floating:
            tensor = keras.Input(feature.shape, name=name, dtype="float32")
            flat[name] = keras.layers.Reshape((width,))(tensor)
            floats += _columns_of(flat[name], other_places(bags, name, width))
            if config.knots:
                bent += _columns_of(flat[name], _numbers_of(context.layout, name, width))
        elif feature.dtype.is_integer:
            tensor = keras.Input(feature.shape, name=name, dtype="int64")
            flat[name] = keras.layers.Reshape((width,))(tensor)
            places = other_places(bags, name, width)
            ids += _columns_of(flat[name], places)
            sizes = id_ranges(context, name, width)
            ranges += [sizes[place] for place in places]
            columns = _columns(context.layout, name, width)
            shared += [columns[i].shared_ids if columns else None for i in places]
        else:
            raise ValueError(
                f"transformed feature {name!r} has type {feature.dtype.name}, which the default "
                "model does not support: encode it in Transform, or give trainer.model_fn."
            )
        inputs[name] = tensor
    if not inputs:
        raise ValueError(
            "Transform's output has no features except label and weight: add columns to features."
        )
    # A copy, because the embeddings are appended to `floats` below.
    linear = _linear_scores(list(floats), ids, ranges, context.outputs) if config.linear else []
    if ids:
        size = config.embedding_size
        if size == "auto":
            size = _embedding_size(max(count for _, count in ranges))
        counts = [count for _, count in ranges]
        table = PackedEmbedding(
            counts,
            size,
            [first for first, _ in ranges],
            starts=_first_rows(counts, shared),
            name="embeddings",
        )
        floats.append(table(_concatenate(ids)))
    for number, bag in enumerate(bags):
        size = config.embedding_size
        if size == "auto":
            size = _embedding_size(bag.count)
        pooled = PooledEmbedding(bag.count, size, name=f"text_{number}")
        floats.append(pooled([_gather_columns(flat, bag.ids), _gather_columns(flat, bag.weights)]))
    if bent:
        floats.append(Hinges(config.knots, name="hinges")(_concatenate(bent)))
    hidden = _hidden(_concatenate(floats), config, context.total_steps)
    return keras.Model(inputs, _outputs(hidden, linear, context), name="default_model")


def _hidden(hidden: keras.KerasTensor, config: ModelConfig, total_steps: int) -> keras.KerasTensor:
    """Return the output `[rows, units]` of the hidden layers for inputs `[rows, size]`."""
    for units in config.hidden_units:
        if config.sparsity is None:
            dense = keras.layers.Dense(units, activation=config.activation)
        else:
            dense = PrunedDense(
                units,
                config.sparsity,
                *_pruning_schedule(total_steps),
                activation=config.activation,
            )
        hidden = dense(hidden)
        if config.dropout:
            hidden = keras.layers.Dropout(config.dropout)(hidden)
    return hidden


def _pruning_schedule(total_steps: int) -> tuple[int, int, int]:
    """Return the first and last step of the pruning, and the steps between two updates.

    It takes the second to fifth tenth of a run, so that half of the steps follow it.
    """
    if total_steps < 1:
        raise ValueError(
            f"trainer.model.sparsity needs the length of the run, and total_steps={total_steps}: "
            "give ModelContext(total_steps=...) the optimizer steps of the whole run."
        )
    begin = total_steps // 10
    end = max(begin + 1, total_steps // 2)
    return begin, end, max(1, (end - begin) // _MASK_UPDATES)


def _outputs(
    hidden: keras.KerasTensor, linear: list[keras.KerasTensor], context: ModelContext
) -> keras.KerasTensor:
    """Return the outputs `[rows, outputs]`."""
    # float32 under any dtype policy: half-precision probabilities make AUC coarse.
    activation = _ACTIVATIONS[context.label_kind]
    output = keras.layers.Dense(
        context.outputs,
        activation=None if linear else activation,
        kernel_initializer="zeros" if linear else "glorot_uniform",
        dtype="float32",
        name="outputs",
    )(hidden)
    if not linear:
        return output
    output = keras.layers.Add(dtype="float32", name="scores")([output, *linear])
    return keras.layers.Activation(activation, dtype="float32", name="activation")(output)


def _linear_scores(
    floats: list[keras.KerasTensor],
    ids: list[keras.KerasTensor],
    ranges: list[tuple[int, int]],
    outputs: int,
) -> list[keras.KerasTensor]:
    """Return weighted sums `[rows, outputs]` of the floats, and of one weight per id.

    All weights are initially 0. There is no bias, because the dense layers have one. Columns with
    shared ids have separate weights: one value may have another effect in each of them.
    """
    found = []
    if floats:
        found.append(
            keras.layers.Dense(
                outputs, use_bias=False, kernel_initializer="zeros", dtype="float32", name="linear"
            )(_concatenate(floats))
        )
    if ids:
        table = PackedEmbedding(
            [count for _, count in ranges],
            outputs,
            [first for first, _ in ranges],
            initializer="zeros",
            dtype="float32",
            name="linear_ids",
        )
        weights = keras.layers.Reshape((len(ranges), outputs))(table(_concatenate(ids)))
        found.append(keras.ops.sum(weights, axis=1))
    return found


def id_ranges(context: ModelContext, name: str, width: int) -> list[tuple[int, int]]:
    """Return (smallest id, number of ids) of each position of an integer feature."""
    sizes = [column.vocabulary_size for column in _columns(context.layout, name, width)]
    if sizes and None not in sizes:
        return [(0, max(1, size or 1)) for size in sizes]
    return [context.id_sizes[name]] * width


def _first_rows(counts: Sequence[int], shared: Sequence[str | None]) -> list[int]:
    """Return the first row of each column's range in a table; one range per name of shared ids."""
    starts: list[int] = []
    known: dict[str, int] = {}
    rows = 0
    for count, name in zip(counts, shared, strict=True):
        if name is not None and name in known:
            starts.append(known[name])
            continue
        starts.append(rows)
        if name is None:
            rows += count
        else:
            known[name] = rows
            rows += max(n for n, other in zip(counts, shared, strict=True) if other == name)
    return starts


def _numbers_of(layout: FeatureLayout | None, name: str, width: int) -> list[int]:
    """Return the positions of a float feature with scaled numbers; without a layout, all."""
    columns = _columns(layout, name, width)
    return [i for i in range(width) if not columns or columns[i].kind not in _NO_HINGES]


def _columns(layout: FeatureLayout | None, name: str, width: int) -> Sequence[Column]:
    """Return the columns of a feature; empty if the layout does not have as many."""
    columns = layout.of(name) if layout is not None else ()
    return columns if len(columns) == width else ()


def _columns_of(tensor: keras.KerasTensor, places: list[int]) -> list[keras.KerasTensor]:
    """Return a list with the tensor of these columns of `[rows, width]`; empty without columns."""
    if not places:
        return []
    if len(places) == tensor.shape[-1]:
        return [tensor]
    return [keras.ops.take(tensor, places, axis=-1)]


def _gather_columns(
    tensors: Mapping[str, keras.KerasTensor], places: Sequence[tuple[str, int]]
) -> keras.KerasTensor:
    """Return these columns concatenated. With packed features, all are in one tensor."""
    by_feature: dict[str, list[int]] = {}
    for name, place in places:
        by_feature.setdefault(name, []).append(place)
    return _concatenate(
        [t for name, at in by_feature.items() for t in _columns_of(tensors[name], at)]
    )


def _embedding_size(largest: int) -> int:
    # fastai's rule of thumb for tabular data, 1.6 n^0.56, within bounds.
    return max(2, min(32, round(1.6 * largest**0.56)))


def _concatenate(tensors: list[keras.KerasTensor]) -> keras.KerasTensor:
    return tensors[0] if len(tensors) == 1 else keras.layers.Concatenate()(tensors)
