"""The signature `input_gradients` of an export, which the component InputGradients calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from shared_core.feature_layout import Column, FeatureLayout
from trainer_module.checks.model import check_built
from trainer_module.gradients.model_inputs import Differentiator
from trainer_module.tfx.id_embeddings import find_id_embeddings

SIGNATURE = "input_gradients"
BASELINE = "baseline_"
SHARE = "share"
_TEXTS = ("text", "text_weight")  # kinds of the columns of one text, which are added up


def argument_name(feature: str) -> str:
    """Return a feature's name as an argument of the signature; `_` replaces other characters."""
    return re.sub(r"[^A-Za-z0-9_]", "_", feature)


def input_gradients_signature(
    model: keras.Model,
    features: Mapping[str, tf.TensorSpec],
    *,
    layout: FeatureLayout | None = None,
    unscaled: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> Any:
    """Return a traced `tf.function`, the signature that the component InputGradients needs.

        archive = keras.export.ExportArchive()
        archive.track(model)
        archive.add_endpoint("input_gradients", input_gradients_signature(model, features))

    Its inputs are a tensor `[rows, ...]` for each transformed feature, a tensor
    `baseline_<feature>` `[1, ...]` for each, and `share` (float32, scalar): the share α of the way
    from the baseline x' to the rows x. It returns

    - `prediction` `[rows]`: f(x' + α (x - x')), the model's output; with several classes, the
      output of the class that is the most probable one at x.
    - `attributions` `[rows, columns]`: (x - x') ∂f/∂x at the same point, summed over the numbers of
      a column. Integrated over α from 0 to 1, they are integrated gradients.
    - `columns`, string `[columns]`: their names.
    - with several classes, `class`, int64 `[rows]`.

    Ids have no gradient. Where a layer embeds them, the point is on the way between the embeddings,
    and the gradient is that of the layer's output. Memory is that of one forward and backward pass.

    Args:
        model: A built Keras model that takes a dict of features and returns one tensor,
            `[rows]`, `[rows, 1]` or `[rows, classes]`.
        features: Transformed feature -> its tensor `[None, ...]`: the inputs of the model.
        layout: Names of the columns of packed features. Without one, a feature of several numbers
            has the columns `name[0]`, `name[1]`, ...
        unscaled: Function of the model's output that is applied before it is differentiated.

    Raises:
        ValueError: The model has several outputs, no input has a gradient, or two features have
            the same argument name.
    """
    check_built(model)
    _check_names(features)
    embeddings = find_id_embeddings(model, features)
    layers = {layer.name: layer for layer in model._flatten_layers(include_self=False)}
    embed = {each.layer: layers[each.layer] for each in embeddings.values()}
    names = _Names(layout, features)
    _check_gradients(features, embed)
    # The order in which Differentiator numbers the inputs.
    inputs = sorted(features)
    all_columns: list[str] = []

    def outputs_of(outputs: Any) -> tf.Tensor:
        single = _single(outputs)
        return single if unscaled is None else unscaled(single)

    def explain(
        features: Mapping[str, tf.Tensor], baseline: Mapping[str, tf.Tensor], share: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        outputs = outputs_of(model(features, training=False))
        found = {}
        explained = None
        if outputs.shape.rank == 2 and outputs.shape[1] != 1:
            found["class"] = explained = tf.argmax(outputs, axis=1)

        def number(outputs: Any) -> tf.Tensor:
            every = outputs_of(outputs)
            return every if explained is None else tf.gather(every, explained, batch_dims=1)

        anything = Differentiator(model, lambda each: tf.reduce_sum(_flat(_single(each)), 1), embed)
        end, first = anything.at(features).tensors, anything.at(baseline).tensors
        way = {name: end[name] - first[name] for name in end}
        point = Differentiator(model, number, embed).at(
            features, lambda name, _: first[name] + tf.cast(share, way[name].dtype) * way[name]
        )
        dtype = point.value.dtype
        parts, columns = [], []
        for name, gradient in point.gradients.items():
            # Products of float16 would be coarse.
            part = _flat(tf.cast(way[name], dtype) * tf.cast(gradient, dtype))
            if name in embeddings:
                each = embeddings[name]
                if each.separate:
                    size = part.shape[1] // len(each.places)
                    part = tf.reduce_sum(tf.reshape(part, [-1, len(each.places), size]), 2)
                    columns += [names.of_place(*place) for place in each.places]
                else:
                    part = tf.reduce_sum(part, 1, keepdims=True)
                    columns.append(names.of_all(each.places, name))
            else:
                feature = inputs[int(name.rsplit(" ", 1)[1])]
                columns += [names.of_place(feature, i) for i in range(part.shape[1])]
            parts.append(part)
        all_columns[:] = order = names.in_order(columns)
        # Several parts of one column, such as two embeddings of an id, are added up.
        summed = tf.math.unsorted_segment_sum(
            tf.transpose(tf.concat(parts, 1)), [order.index(name) for name in columns], len(order)
        )
        return {
            **found,
            "prediction": point.value,
            "attributions": tf.transpose(summed),
            "columns": tf.constant(order),
        }

    specs = [
        {name: _named(spec, argument_name(name)) for name, spec in features.items()},
        {
            name: _named(spec, BASELINE + argument_name(name), rows=1)
            for name, spec in features.items()
        },
        tf.TensorSpec([], tf.float32, name=SHARE),
    ]
    traced = tf.function(explain, input_signature=specs, autograph=False)
    traced.get_concrete_function()
    _warn_if_left_out(names, features, all_columns)
    return traced


class _Names:
    """Names of the columns of features."""

    def __init__(self, layout: FeatureLayout | None, features: Mapping[str, tf.TensorSpec]):
        self._columns: dict[tuple[str, int], Column] = {}
        for column in layout.columns if layout else ():
            self._columns[column.output, column.position] = column
        self._places = [(name, i) for name, spec in features.items() for i in range(_width(spec))]
        self._widths = {name: _width(spec) for name, spec in features.items()}

    def of_place(self, feature: str, position: int) -> str:
        column = self._columns.get((feature, position))
        if column is not None:
            return column.source if column.kind in _TEXTS else column.name
        return feature if self._widths[feature] == 1 else f"{feature}[{position}]"

    def of_all(self, places: tuple[tuple[str, int], ...], layer: str) -> str:
        """Return the name of several ids together: the column that all are of, or the layer."""
        names = {self.of_place(*place) for place in places}
        return names.pop() if len(names) == 1 else layer

    def in_order(self, columns: list[str]) -> list[str]:
        """Return the different names in the order of the layout, those of layers last."""
        ordered = list(self._columns.values())
        known = [c.source if c.kind in _TEXTS else c.name for c in ordered]
        known += [self.of_place(*place) for place in self._places]
        rank = {name: i for i, name in reversed(list(enumerate(known)))}
        return sorted(dict.fromkeys(columns), key=lambda name: rank.get(name, len(rank)))

    def of_features(self, features: list[str]) -> list[str]:
        return [self.of_place(*place) for place in self._places if place[0] in features]


def _warn_if_left_out(
    names: _Names, features: Mapping[str, tf.TensorSpec], columns: list[str]
) -> None:
    ids = names.of_features([name for name, spec in features.items() if spec.dtype.is_integer])
    left_out = [name for name in dict.fromkeys(ids) if name not in columns]
    if left_out:
        logging.warning(
            "input_gradients: no attribution for ids %s, because no layer gets them alone and "
            "returns floats: embed them with keras.layers.Embedding or PackedEmbedding.",
            ", ".join(map(repr, left_out)),
        )


def _check_names(features: Mapping[str, tf.TensorSpec]) -> None:
    names: dict[str, str] = {}
    for name in features:
        other = names.setdefault(argument_name(name), name)
        if other != name:
            raise ValueError(
                f"input_gradients: features {other!r} and {name!r} would both be the argument "
                f"{argument_name(name)!r}: rename one of them in Transform."
            )


def _check_gradients(features: Mapping[str, tf.TensorSpec], embed: Mapping[str, Any]) -> None:
    if not embed and not any(spec.dtype.is_floating for spec in features.values()):
        types = ", ".join(f"{name} ({spec.dtype.name})" for name, spec in features.items())
        raise ValueError(
            f"input_gradients: no input of the model has a gradient: it takes {types}, and no "
            "layer embeds ids. Add a column of numbers, or embed ids with keras.layers.Embedding."
        )


def check_one_output(model: keras.Model) -> None:
    """Raise ValueError for a model with other outputs than `[rows]` or `[rows, n]`, if known."""
    if getattr(model, "outputs", None):
        _check_outputs([tuple(tensor.shape) for tensor in model.outputs])


def _check_outputs(shapes: list[tuple[int | None, ...]]) -> None:
    if len(shapes) != 1 or len(shapes[0]) not in (1, 2):
        raise ValueError(
            f"input_gradients: the model has outputs of shapes {shapes}: attributions need one "
            "output, [rows], [rows, 1] or [rows, classes]. Leave `explain` out, or give another "
            "model."
        )


def _single(outputs: Any) -> tf.Tensor:
    flat = tf.nest.flatten(outputs)
    _check_outputs([tuple(tensor.shape) for tensor in flat])
    return flat[0]


def _flat(tensor: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tensor, [tf.shape(tensor)[0], tensor.shape[1:].num_elements()])


def _width(spec: tf.TensorSpec) -> int:
    return int(np.prod(spec.shape[1:].as_list()))


def _named(spec: tf.TensorSpec, name: str, rows: int | None = None) -> tf.TensorSpec:
    return tf.TensorSpec([rows, *spec.shape[1:]], spec.dtype, name=name)
