"""Export a SavedModel: the transform graph and the model with its signatures."""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf
from absl import logging

from shared_core.feature_layout import Column, FeatureLayout
from shared_core.images import read_images
from trainer_module.common.tensors import Json, Tensors
from trainer_module.data.label_scale import LabelScale, label_numbers
from trainer_module.model.model_context import TransformOutput
from trainer_module.tfx.input_gradients import SIGNATURE, input_gradients_signature
from trainer_module.tfx.label_names import OUTPUTS, LabelNames, with_classes

_INPUT_CHECKS = "assets.extra/input_checks.json"
_DATES = ("date", "cyclic", "elapsed")  # kinds of a date's outputs
_PART_BYTES = 1 << 20  # pixels of the rows that pass through a model together
_BITS = 32  # bits in a word of FeatureLayout.missing
_OTHER = "_other"  # suffix of the one_hot output for values that are not listed

# How tf.io.parse_example reads a column.
_ParseSpec: TypeAlias = tf.io.FixedLenFeature | tf.io.VarLenFeature
# tft.TransformFeaturesLayer, a model of tf_keras.
_TransformLayer: TypeAlias = Any
_Call: TypeAlias = Callable[[Mapping[str, tf.Tensor]], Tensors]


def export_model(
    model: keras.Model,
    transform_output: TransformOutput,
    directory: str,
    *,
    inputs: Sequence[str],
    label_scale: LabelScale | None = None,
    names: LabelNames | None = None,
    layout: FeatureLayout | None = None,
    with_gradients: bool = False,
) -> None:
    """Write a SavedModel that accepts raw rows and that session-style loaders can read.

    - `serving_default`: takes `examples`, serialized tf.Examples `[rows]` with the columns that the
      model's inputs are computed from, and returns `outputs` `[rows, k]` (or one tensor per name if
      the model returns a dict). Other columns, including the label, are optional. A classifier with
      known class names also returns `prediction`, `classes` and `probabilities` (`with_classes`).
    - `transform_features`: takes `examples` with all columns and returns every transformed feature;
      a regression's label as float64, NaN where missing.
    - `raw`: takes one tensor per column of `serving_default` and returns the same outputs. A column
      of variable length is `[rows, values]`; NaN, "" and the smallest int64 (-2^63) mark missing
      values and pad short rows. An argument has the name of its column, except that characters
      which TensorFlow does not accept are replaced, `class` becomes `class_`, and `self` becomes
      `self_`.
    - `input_gradients`, with `with_gradients`: gradients of the output in the label's unit; see
      `input_gradients_signature`.

    `assets.extra/raw_columns.json` lists the raw columns for serving: name, dtype, and argument of
    `raw`.

    The model takes `inputs`, transformed features, as a dict; its outputs are converted back by
    `label_scale`, and `names` are their meaning.
    """
    layer = transform_output.transform_features_layer()
    raw_spec: dict[str, _ParseSpec] = transform_output.raw_feature_spec()
    unused = _unused_columns(layer, raw_spec, inputs)
    serving_spec = {name: spec for name, spec in raw_spec.items() if name not in unused}

    images = [each for each in (layout.images if layout else ()) if each.name in inputs]

    @tf.function(autograph=False)
    def call(features: Mapping[str, tf.Tensor]) -> Tensors:
        return model(read_images(features, images), training=False)

    if images:
        call = _by_parts(call, max(1, _PART_BYTES // sum(math.prod(i.shape) for i in images)))

    def predict(raw: Mapping[str, Tensors]) -> dict[str, tf.Tensor]:
        transformed = layer(dict(raw))
        outputs = call({name: _model_input(transformed[name]) for name in inputs})
        named = _outputs_by_name(outputs if label_scale is None else label_scale.unscaled(outputs))
        return named if names is None else with_classes(named, names)

    def serve(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return predict(tf.io.parse_example(examples, serving_spec))

    def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        transformed = {
            name: _dense(tensor)
            for name, tensor in layer(tf.io.parse_example(examples, raw_spec)).items()
        }
        if names is not None and names.kind == "regression" and names.column in transformed:
            transformed[names.column] = label_numbers(transformed[names.column])
        return transformed

    def raw(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return predict(
            {
                name: columns[name]
                if isinstance(spec, tf.io.FixedLenFeature)
                else _to_parsed(columns[name])
                for name, spec in serving_spec.items()
            }
        )

    examples_spec = tf.TensorSpec([None], tf.string, name="examples")
    arguments = _argument_names(list(serving_spec))
    raw_specs = {
        name: _raw_tensor_spec(name, spec, arguments[name]) for name, spec in serving_spec.items()
    }
    archive = keras.export.ExportArchive()
    archive.track(model)
    # The layer's vocabulary tables, which the signatures need besides variables. It is a tf_keras
    # model: session-style loaders would not find the tables of an attribute of the Keras 3 model,
    # and tracked whole it would be traced again, which takes longer than the rest of the export.
    for part in tf.train.TrackableView(layer).descendants():
        if isinstance(part, tf.saved_model.experimental.TrackableResource):
            archive.track(part)
    archive.add_endpoint("serving_default", serve, [examples_spec])
    archive.add_endpoint("transform_features", transform_features, [examples_spec])
    archive.add_endpoint("raw", raw, [raw_specs])
    if with_gradients:
        spec = transform_output.transformed_feature_spec()
        gradients = input_gradients_signature(
            model,
            {name: tf.TensorSpec([None, *spec[name].shape], spec[name].dtype) for name in inputs},
            layout=layout,
            unscaled=None if label_scale is None else label_scale.unscaled,
        )
        archive.add_endpoint(SIGNATURE, gradients)
    archive.write_out(directory, verbose=False)
    _write_raw_columns(directory, serving_spec, arguments)
    logging.info("Exported the model to %s", directory)


def _by_parts(call: _Call, size: int) -> _Call:
    """Return a function that calls another one for `size` rows at a time, to bound its memory."""

    def by_parts(features: Mapping[str, tf.Tensor]) -> Tensors:
        rows = tf.shape(next(iter(features.values())))[0]

        def part(start: tf.Tensor | int) -> Tensors:
            return call({name: tensor[start : start + size] for name, tensor in features.items()})

        def add_part(start: tf.Tensor, outputs: Tensors) -> tuple[tf.Tensor, Tensors]:
            both = tf.nest.map_structure(lambda *t: tf.concat(t, axis=0), outputs, part(start))
            return start + size, both

        first = part(0)
        shapes = tf.nest.map_structure(lambda t: tf.TensorShape([None, *t.shape[1:]]), first)
        loop = tf.while_loop(
            lambda start, _: start < rows,
            add_part,
            (size, first),
            shape_invariants=(tf.TensorShape([]), shapes),
        )
        return loop[1]

    return by_parts


def _argument_names(columns: Sequence[str]) -> dict[str, str]:
    """Return each column's name in TensorFlow, where `_` replaces characters that it rejects."""
    taken: dict[str, str] = {}
    for column in columns:
        base = re.sub(r"[^A-Za-z0-9_.]", "_", column).lstrip("_") or "column"
        # TensorFlow turns the names into parameters of Python methods.
        if keyword.iskeyword(base) or base == "self":
            base += "_"
        name = base
        number = 1
        while name in taken.values() or (name != column and name in columns):
            name, number = f"{base}_{number}", number + 1
        taken[column] = name
    return taken


def _write_raw_columns(
    directory: str, spec: Mapping[str, _ParseSpec], arguments: Mapping[str, str]
) -> None:
    columns = [
        {"name": name, "dtype": feature.dtype.name, "argument": arguments[name]}
        for name, feature in spec.items()
    ]
    folder = f"{directory}/assets.extra"  # SavedModel's place for other files
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/raw_columns.json", "w") as stream:
        stream.write(json.dumps({"version": 1, "columns": columns}, indent=1))


def _unused_columns(
    layer: _TransformLayer, raw_spec: Mapping[str, _ParseSpec], needed: Sequence[str]
) -> tuple[str, ...]:
    """Return the raw columns that no needed feature is computed from.

    The layer knows which columns each output depends on, because it omits outputs whose columns are
    absent. Its public API shows this only by tracing without a column, which takes a second per
    column. Hence the private names, which are the same in TFT 1.16 to 1.21.
    """
    loader = layer._saved_model_loader
    inputs = {
        name: {id(part) for part in tf.nest.flatten(tensor, expand_composites=True)}
        for name, tensor in loader._structured_inputs.items()
    }
    reached = {id(source) for output in needed for source in loader._output_to_inputs_map[output]}
    return tuple(name for name in raw_spec if not inputs.get(name, set()) & reached)


def _outputs_by_name(outputs: Tensors) -> dict[str, tf.Tensor]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if isinstance(outputs, (list, tuple)):
        return {f"outputs_{i}": tensor for i, tensor in enumerate(outputs)}
    return {OUTPUTS: outputs}


def _dense(tensor: tf.Tensor | tf.SparseTensor | tf.RaggedTensor) -> tf.Tensor:
    if isinstance(tensor, tf.SparseTensor):
        return tf.sparse.to_dense(tensor)
    return tensor.to_tensor() if isinstance(tensor, tf.RaggedTensor) else tensor


def _model_input(tensor: tf.Tensor | tf.SparseTensor) -> tf.Tensor:
    """Return token ids padded with 0, at least one per row; another feature as it is."""
    if not isinstance(tensor, tf.SparseTensor):
        return tensor
    ids = tf.sparse.to_dense(tensor)
    # A row without tokens alone would have length 0, which not every layer takes.
    return tf.pad(ids, [[0, 0], [0, tf.cast(tf.equal(tf.shape(ids)[1], 0), tf.int32)]])


def _raw_tensor_spec(name: str, spec: _ParseSpec, argument: str) -> tf.TensorSpec:
    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.TensorSpec([None, *spec.shape], spec.dtype, name=argument)
    if isinstance(spec, tf.io.VarLenFeature):
        return tf.TensorSpec([None, None], spec.dtype, name=argument)
    raise ValueError(
        f"raw column {name!r} is a {type(spec).__name__}, for which there is no serving signature: "
        "give it one value per row, or a list of values, in the schema."
    )


@tf.function(autograph=False)  # traced once per type: a table may have a thousand columns
def _to_parsed(tensor: tf.Tensor) -> tf.SparseTensor:
    """Return what parse_example would return for the same values of a VarLenFeature."""
    if tensor.dtype.is_floating:
        present = tf.logical_not(tf.math.is_nan(tensor))
    elif tensor.dtype == tf.string:
        present = tf.not_equal(tensor, "")
    else:
        present = tf.not_equal(tensor, tensor.dtype.min)
    counted = tf.cumsum(tf.cast(present, tf.int64), axis=1)
    where = tf.where(present)
    place = tf.gather_nd(counted, where) - 1  # parse_example leaves no gaps
    longest = tf.reduce_max(tf.concat([tf.zeros([1], tf.int64), tf.reshape(counted, [-1])], 0))
    return tf.sparse.SparseTensor(
        tf.stack([where[:, 0], place], axis=1),
        tf.gather_nd(tensor, where),
        tf.stack([tf.shape(tensor, tf.int64)[0], longest]),
    )


def write_input_checks(directory: str, layout: FeatureLayout) -> None:
    """Write which outputs of the transform graph show `predict` an unknown input.

    A category that was not in the training rows gets a separate id, and an unreadable date counts
    as missing. In both cases the model still returns a prediction. `assets.extra/input_checks.json`
    of the SavedModel says where the outputs of the signature `transform_features` show it:

        {"version": 1,
         "categories": [{"column": "town", "output": "packed_int", "position": 0, "ids": [79, 80]}],
         "dates": [{"column": "day", "output": "packed_missing", "word": 0, "bit": 3}]}

    A category is unseen if its id is in `ids`, both ends included, or below 0. A date in the input
    was unreadable if its bit is 1.
    """
    with tf.io.gfile.GFile(f"{directory}/{_INPUT_CHECKS}", "w") as stream:
        stream.write(json.dumps({"version": 1, **_input_checks(layout)}, indent=1))


def _input_checks(layout: FeatureLayout) -> Mapping[str, list[dict[str, Json]]]:
    """Return the content of the file, without its version."""
    categories, dates = [], {}
    for place, column in enumerate(layout.columns):
        if (ids := _unseen_ids(column)) is not None:
            where = {"output": column.output, "position": column.position, "ids": ids}
            categories.append({"column": column.source, **where})
        if column.kind in _DATES and layout.missing is not None and column.source not in dates:
            bit = {"word": place // _BITS, "bit": place % _BITS}
            dates[column.source] = {"column": column.source, "output": layout.missing, **bit}
    return {"categories": categories, "dates": list(dates.values())}


def _unseen_ids(column: Column) -> list[int] | None:
    """Return the first and last id of values that the column's encoder does not know."""
    size = column.vocabulary_size
    if column.kind == "vocabulary" and size is not None and column.extra_ids:
        return [size - column.extra_ids, size - 2]  # the last id stands for missing
    if column.kind == "integer" and size is not None:
        return [size - 2, size - 2]
    if column.kind == "one_hot" and column.name == column.source + _OTHER:
        return [1, 1]
    return None
