"""The SavedModel: the transform graph and the model behind three signatures."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from trainer_module.data.label_scale import LabelScale
from trainer_module.tfx.class_outputs import OUTPUTS, with_classes
from trainer_module.tfx.label_names import LabelNames


def export_model(
    model: keras.Model,
    transform_output: Any,
    directory: str,
    *,
    inputs: Sequence[str],
    label_scale: LabelScale | None = None,
    names: LabelNames | None = None,
) -> None:
    """Write a SavedModel that takes raw rows, readable by session-style loaders too.

    - `serving_default`: `examples`, serialized tf.Examples `[rows]` of the columns that the model's
      inputs are computed from, to `outputs` `[rows, k]` (or one tensor per name, for a model that
      gives a dict). Other columns, the label's too, may be there or not. A classifier whose classes
      are known by name gives `prediction`, `classes` and `probabilities` too (`with_classes`).
    - `transform_features`: `examples` of all columns, to every transformed feature.
    - `raw`: one tensor per column as in `serving_default`, to the outputs as above. A column of
      variable length is `[rows, values]`, where NaN, "" and the smallest int64 (-2^63) say that
      there is no value: rows of different length are filled up with them. An argument is named as
      its column, but for characters that TensorFlow has no name for, and `class_` for `class`,
      `self_` for `self`.

    Beside it, `assets.extra/raw_columns.json` lists the raw columns that serving takes: name,
    dtype, and argument of `raw`.

    Args:
        model: A Keras model over transformed features.
        transform_output: tft.TFTransformOutput.
        directory: Where to write.
        inputs: Transformed features that the model takes, as a dict.
        label_scale: What the model's outputs are brought back from, to the label's own unit.
        names: What the outputs mean; None: they stay as they are.
    """
    layer = transform_output.transform_features_layer()
    raw_spec: dict[str, Any] = transform_output.raw_feature_spec()
    unused = unused_columns(layer, raw_spec, inputs)
    serving_spec = {name: spec for name, spec in raw_spec.items() if name not in unused}

    def predict(raw: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        transformed = layer(dict(raw))
        outputs = model({name: transformed[name] for name in inputs}, training=False)
        named = _named(outputs if label_scale is None else label_scale.unscaled(outputs))
        return named if names is None else with_classes(named, names)

    def serve(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return predict(tf.io.parse_example(examples, serving_spec))

    def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        transformed = layer(tf.io.parse_example(examples, raw_spec))
        return {name: _dense(tensor) for name, tensor in transformed.items()}

    def raw(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return predict({n: _as_parsed(columns[n], spec) for n, spec in serving_spec.items()})

    examples_spec = tf.TensorSpec([None], tf.string, name="examples")
    arguments = argument_names(list(serving_spec))
    raw_specs = {
        name: _raw_tensor_spec(name, spec, arguments[name]) for name, spec in serving_spec.items()
    }
    archive = keras.export.ExportArchive()
    archive.track(model)
    for table in _resources(layer):
        archive.track(table)
    archive.add_endpoint("serving_default", serve, [examples_spec])
    archive.add_endpoint("transform_features", transform_features, [examples_spec])
    archive.add_endpoint("raw", raw, [raw_specs])
    archive.write_out(directory, verbose=False)
    _write_raw_columns(directory, serving_spec, arguments)
    logging.info("Exported the model to %s", directory)


def _resources(layer: Any) -> list[Any]:
    """The vocabulary tables of the transform layer, which the signatures need beside variables.

    The layer is a tf_keras model. As an attribute of the Keras 3 model, session-style loaders would
    not find its tables; tracked whole, it is traced once more with another signature, which
    takes longer than all the rest of the export.
    """
    found = tf.train.TrackableView(layer).descendants()
    resource = tf.saved_model.experimental.TrackableResource
    return [trackable for trackable in found if isinstance(trackable, resource)]


def argument_names(columns: Sequence[str]) -> dict[str, str]:
    """Column -> a name that TensorFlow accepts: the same, or with `_` for what it does not."""
    taken: dict[str, str] = {}
    for column in columns:
        base = re.sub(r"[^A-Za-z0-9_.]", "_", column).lstrip("_") or "column"
        # TensorFlow makes parameters of its methods' functions of them.
        if keyword.iskeyword(base) or base == "self":
            base += "_"
        name = base
        number = 1
        while name in taken.values() or (name != column and name in columns):
            name, number = f"{base}_{number}", number + 1
        taken[column] = name
    return taken


def _write_raw_columns(
    directory: str, spec: Mapping[str, Any], arguments: Mapping[str, str]
) -> None:
    columns = [
        {"name": name, "dtype": feature.dtype.name, "argument": arguments[name]}
        for name, feature in spec.items()
    ]
    folder = f"{directory}/assets.extra"  # SavedModel's place for what TensorFlow does not read
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/raw_columns.json", "w") as stream:
        stream.write(json.dumps({"version": 1, "columns": columns}, indent=1))


def unused_columns(
    layer: Any, raw_spec: Mapping[str, Any], needed: Sequence[str]
) -> tuple[str, ...]:
    """Return the raw columns that no needed feature is computed from.

    The layer knows what each of its outputs is computed from, since it leaves out those that an
    absent column makes impossible. It shows this only by being traced without that column, which
    takes a second for each: hence the private names, the same in TFT 1.16 to 1.21.
    """
    loader = layer._saved_model_loader
    inputs = {
        name: {id(part) for part in tf.nest.flatten(tensor, expand_composites=True)}
        for name, tensor in loader._structured_inputs.items()
    }
    reached = {id(source) for output in needed for source in loader._output_to_inputs_map[output]}
    return tuple(name for name in raw_spec if not inputs.get(name, set()) & reached)


def _named(outputs: Any) -> dict[str, tf.Tensor]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if isinstance(outputs, (list, tuple)):
        return {f"outputs_{i}": tensor for i, tensor in enumerate(outputs)}
    return {OUTPUTS: outputs}


def _dense(tensor: Any) -> tf.Tensor:
    if isinstance(tensor, tf.SparseTensor):
        return tf.sparse.to_dense(tensor)
    return tensor.to_tensor() if isinstance(tensor, tf.RaggedTensor) else tensor


def _raw_tensor_spec(name: str, spec: Any, argument: str) -> tf.TensorSpec:
    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.TensorSpec([None, *spec.shape], spec.dtype, name=argument)
    if isinstance(spec, tf.io.VarLenFeature):
        return tf.TensorSpec([None, None], spec.dtype, name=argument)
    raise ValueError(
        f"raw column {name!r} is a {type(spec).__name__}, for which there is no serving signature: "
        "give it one value per row, or a list of values, in the schema."
    )


def _as_parsed(tensor: tf.Tensor, spec: Any) -> Any:
    """Return what parse_example would have given for the same values."""
    if isinstance(spec, tf.io.FixedLenFeature):
        return tensor
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
