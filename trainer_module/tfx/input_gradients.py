"""The signature `input_gradients` of an export, which the component InputGradients calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from shared_core.feature_layout import FeatureLayout
from trainer_module.checks.model import check_built
from trainer_module.common.layers import replaced_calls
from trainer_module.gradients.inputs import Differentiator, integrate
from trainer_module.model.layers import PackedEmbedding

SIGNATURE = "input_gradients"
SHARES, WEIGHTS = "path_shares", "path_weights"
_TEXTS = ("text", "text_weight")  # kinds of the columns of one text, which are added up
_Place = tuple[str, int]  # feature, and position in it


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

    Its inputs are a tensor `[rows, ...]` for each transformed feature, and a quadrature over [0, 1]
    whose first point is 0: `path_shares` and `path_weights`, float64 `[points]`. The outputs are
    integrated gradients from a row of zeros to each row:

    - `prediction` and `baseline_prediction`, `[rows]`: the model's output, of the row and of the
      zeros; with several classes, that of the class that is the most probable one for the row.
    - `attributions` `[rows, columns]`, summed over the numbers of a column.
    - `columns`, string `[columns]`: their names.
    - with several classes, `class`, int64 `[rows]`.

    Ids have no gradient. Where a layer embeds them, the path is that between the embeddings, and
    the gradient is that of the layer's output. Memory is that of one forward and backward pass.

    Args:
        model: A built Keras model that takes a dict of features and returns one tensor,
            `[rows]`, `[rows, 1]` or `[rows, classes]`.
        features: Transformed feature -> its tensor `[None, ...]`: the inputs of the model.
        layout: Names of the columns of packed features. Without one, a feature of several numbers
            has the columns `name[0]`, `name[1]`, ...
        unscaled: Function of the model's output that is applied before it is differentiated.

    Raises:
        ValueError: The model has several outputs, no input has a gradient, or two arguments have
            the same name.
    """
    check_built(model)
    specs = {
        name: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype, name=argument_name(name))
        for name, spec in features.items()
    }
    _check_names(features)
    embeddings = _find_id_embeddings(model, features)
    if not embeddings and not any(spec.dtype.is_floating for spec in features.values()):
        types = ", ".join(f"{name} ({spec.dtype.name})" for name, spec in features.items())
        raise ValueError(
            f"input_gradients: no input of the model has a gradient: it takes {types}, and no "
            "layer embeds ids. Add a column of numbers, or embed ids with keras.layers.Embedding."
        )
    known = {layer.name: layer for layer in model._flatten_layers(include_self=False)}
    columns = _columns(layout, features)
    found_columns: list[str] = []

    def output(outputs: Any) -> tf.Tensor:
        flat = tf.nest.flatten(outputs)
        _check_outputs([tuple(tensor.shape) for tensor in flat])
        return flat[0] if unscaled is None else unscaled(flat[0])

    layers = {each.layer: known[each.layer] for each in embeddings.values()}
    what = Differentiator(model, output, layers)

    def explain(
        features: Mapping[str, tf.Tensor], shares: tf.Tensor, weights: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        outputs = output(model(features, training=False))
        several = outputs.shape.rank == 2 and outputs.shape[1] != 1
        classes = tf.argmax(outputs, axis=1) if several else None
        zeros = {name: tf.zeros_like(tensor[:1]) for name, tensor in features.items()}
        first = what.at(zeros, None, None if classes is None else tf.zeros_like(classes[:1]))
        found, value, start = integrate(what, features, first.tensors, shares, weights, classes)
        parts, names = [], []
        for name, tensor in found.items():
            part = tf.reshape(tensor, [tf.shape(tensor)[0], tensor.shape[1:].num_elements()])
            if name in embeddings:
                owners = embeddings[name].owners(columns, part.shape[1])
            else:
                feature = sorted(features)[int(name.rsplit(" ", 1)[1])]
                owners = [columns[feature, i] for i in range(part.shape[1])]
            names += owners
            parts.append(tf.cast(part, value.dtype))
        # In the order of the layout, those of layers last. Several parts of one are added up.
        rank = {name: i for i, name in reversed(list(enumerate(columns.values())))}
        found_columns[:] = order = sorted(set(names), key=lambda n: (rank.get(n, len(rank)), n))
        segments = [order.index(name) for name in names]
        summed = tf.math.unsorted_segment_sum(
            tf.transpose(tf.concat(parts, 1)), segments, len(order)
        )
        return {
            **({} if classes is None else {"class": classes}),
            "prediction": value,
            "baseline_prediction": start,
            "attributions": tf.transpose(summed),
            "columns": tf.constant(order),
        }

    quadrature = [tf.TensorSpec([None], tf.float64, name=name) for name in (SHARES, WEIGHTS)]
    traced = tf.function(explain, input_signature=[specs, *quadrature], autograph=False)
    traced.get_concrete_function()
    ids = [n for (feature, _), n in columns.items() if features[feature].dtype.is_integer]
    left_out = [name for name in dict.fromkeys(ids) if name not in found_columns]
    if left_out:
        logging.warning(
            "input_gradients: no attribution for ids %s, because no layer gets them alone and "
            "returns floats: embed them with keras.layers.Embedding or PackedEmbedding.",
            ", ".join(map(repr, left_out)),
        )
    return traced


class _IdEmbedding(NamedTuple):
    """One call of a layer that gets ids and returns numbers."""

    layer: str
    places: tuple[_Place, ...]  # place of each id that it gets, in order; empty if unknown
    separate: bool  # whether the output has one part of equal size for each id, in their order

    def owners(self, columns: Mapping[_Place, str], size: int) -> list[str]:
        """Return the column that each of the output's numbers belongs to, else the layer."""
        names = [columns[place] for place in self.places]
        if self.separate:
            return np.repeat(names, size // len(names)).tolist()
        return size * [names[0] if len(set(names)) == 1 else self.layer]


def _find_id_embeddings(
    model: keras.Model, specs: Mapping[str, tf.TensorSpec]
) -> dict[str, _IdEmbedding]:
    """Return the calls of layers whose inputs include ids and whose outputs are floats, by name.

    The model is called with one row of numbers that say where each id is from, and with the same
    numbers from last to first, which shows whether a layer gets them unchanged. Not considered are
    layers that contain others, and layers that are called in a branch, loop or function. Further
    calls of a layer are named `layer_1`, ... as in `InputGradients.embeddings`.
    """
    places = [place for place in _places(specs) if specs[place[0]].dtype.is_integer]
    if not places:
        return {}
    calls: dict[str, tuple[keras.layers.Layer, tf.TensorShape]] = {}
    elsewhere: set[str] = set()

    def row(numbers: Iterable[int]) -> dict[str, tf.Tensor]:
        rest, found = iter(numbers), {}
        for name, spec in specs.items():
            shape = [1, *spec.shape[1:]]
            if spec.dtype.is_integer:
                ids = np.reshape([next(rest) for _ in range(_width(spec))], shape)
                found[name] = tf.constant(ids, spec.dtype)
            else:
                found[name] = tf.zeros(shape, spec.dtype)
        return found

    @tf.function(autograph=False)
    def ids_of_calls(features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        graph, found = tf.compat.v1.get_default_graph(), {}

        def watch(layer: keras.layers.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                ids = [value for value in tf.nest.flatten((args, kwargs)) if _is_id(value)]
                if not ids:
                    return call(*args, **kwargs)
                # The numbers may be no ids of this layer.
                valid, options = tf.nest.map_structure(
                    lambda value: tf.zeros_like(value) if _is_id(value) else value, (args, kwargs)
                )
                output = call(*valid, **options)
                if not isinstance(output, tf.Tensor) or not output.dtype.is_floating:
                    return call(*args, **kwargs)
                if tf.compat.v1.get_default_graph() is not graph:
                    elsewhere.add(layer.name)
                    return output
                number = sum(each is layer for each, _ in calls.values())
                name = f"{layer.name}_{number}" if number else layer.name
                calls[name] = layer, output.shape
                found[name] = ids[0] if len(ids) == 1 else tf.constant([-1])
                return output

            return watched

        leaves = [
            layer
            for layer in model._flatten_layers(include_self=False)
            if len(list(layer._flatten_layers())) == 1
        ]
        with replaced_calls((layer, watch(layer, layer.call)) for layer in leaves):
            model(features, training=False)
        return found

    count = len(places)
    first, second = (
        {name: ids.numpy() for name, ids in ids_of_calls(row(numbers)).items()}
        for numbers in (range(count), reversed(range(count, 2 * count)))
    )
    embeddings = {}
    for name, (layer, shape) in calls.items():
        ids = first[name]
        same = second[name].shape == ids.shape and np.all(second[name] == 2 * count - 1 - ids)
        is_known = same and np.all((ids >= 0) & (ids < count))
        owned = tuple(places[i] for i in ids.ravel()) if is_known else ()
        separate = bool(owned) and (
            len(owned) == 1 or isinstance(layer, PackedEmbedding) or shape[:-1] == ids.shape
        )
        if layer.name not in elsewhere:
            embeddings[name] = _IdEmbedding(layer.name, owned, separate)
    return embeddings


def _is_id(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and value.dtype.is_integer


def _places(specs: Mapping[str, tf.TensorSpec]) -> list[_Place]:
    return [(name, i) for name, spec in specs.items() for i in range(_width(spec))]


def _columns(layout: FeatureLayout | None, specs: Mapping[str, tf.TensorSpec]) -> dict[_Place, str]:
    """Return the column of each place, in the order of the layout."""
    found = {
        (column.output, column.position): column.source if column.kind in _TEXTS else column.name
        for column in (layout.columns if layout else ())
    }
    places = _places(specs)
    found = {place: name for place, name in found.items() if place in set(places)}
    for name, i in places:
        found.setdefault((name, i), name if _width(specs[name]) == 1 else f"{name}[{i}]")
    return found


def _check_names(features: Mapping[str, tf.TensorSpec]) -> None:
    names = {SHARES: SHARES, WEIGHTS: WEIGHTS}
    for name in features:
        other = names.setdefault(argument_name(name), name)
        if other != name or name in (SHARES, WEIGHTS):
            raise ValueError(
                f"input_gradients: {other!r} and {name!r} would both be the argument "
                f"{argument_name(name)!r}: rename the feature in Transform."
            )


def check_one_output(model: keras.Model) -> None:
    """Raise ValueError for a model with other outputs than `[rows]` or `[rows, n]`, if known.

    Pictures and sequences of tokens among its inputs are refused, too.
    """
    inputs = getattr(model, "inputs", None) or ()
    others = [t.name for t in inputs if t.dtype == "uint8" or None in t.shape[1:]]
    if others:
        raise ValueError(
            f"input_gradients: the model takes pictures or tokens ({', '.join(others)}), and "
            "attributions are those of single numbers and ids. Leave `explain` out."
        )
    if getattr(model, "outputs", None):
        _check_outputs([tuple(tensor.shape) for tensor in model.outputs])


def _check_outputs(shapes: list[tuple[int | None, ...]]) -> None:
    if len(shapes) != 1 or len(shapes[0]) not in (1, 2):
        raise ValueError(
            f"input_gradients: the model has outputs of shapes {shapes}: attributions need one "
            "output, [rows], [rows, 1] or [rows, classes]. Leave `explain` out, or give another "
            "model."
        )


def _width(spec: tf.TensorSpec) -> int:
    return int(np.prod(spec.shape[1:].as_list()))
