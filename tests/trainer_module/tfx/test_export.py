"""The SavedModel as servers and session-style loaders see it.

Reference: the Keras model on the features that Transform itself wrote. Tolerance: 1e-6 (float32).
"""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import small_transform
import tensorflow as tf
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.input_gradients.executor import _attributions_of
from shared_core.feature_layout import Column, FeatureLayout
from trainer_module.tfx.export import (
    _argument_names,
    _input_checks,
    _to_parsed,
    export_model,
)
from trainer_module.tfx.label_names import LabelNames


@pytest.fixture(scope="module")
def exported(packed, tmp_path_factory):
    """(Transform output, model, folder of the SavedModel)."""
    import tensorflow_transform as tft

    data = packed
    keras.utils.set_random_seed(0)
    fare = keras.Input((1,), name="packed_float")
    company = keras.Input((2,), name="packed_int", dtype="int64")
    inputs = {"packed_float": fare, "packed_int": company}
    table = keras.layers.Embedding(30, 4)
    hidden = keras.layers.Concatenate()([fare, keras.layers.Flatten()(table(company))])
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    folder = str(tmp_path_factory.mktemp("exported") / "packed")
    export_model(
        model,
        tft.TFTransformOutput(data.graph),
        folder,
        inputs=list(inputs),
        names=LabelNames("ride", "binary", ["short", "lange Fahrt, über 5 €"], "probabilities"),
    )
    return data, model, folder


def eval_rows(data, count=40):
    """Raw rows in the order of the transformed files, which Beam may have changed: by fare."""
    return sorted(data.raw["eval"], key=lambda row: row["fare"])[:count]


def expected(data, model, count=40):
    """Predictions for the same rows from what Transform wrote."""
    import tensorflow_transform as tft

    spec = tft.TFTransformOutput(data.graph).transformed_feature_spec()
    files = tf.io.gfile.glob(data.eval)
    records = tf.data.TFRecordDataset(files, "GZIP").batch(10_000)
    features = tf.io.parse_example(next(iter(records)), spec)
    features = {
        name: tf.sparse.to_dense(tensor) if isinstance(tensor, tf.SparseTensor) else tensor
        for name, tensor in features.items()
    }
    by_fare = np.argsort(features["packed_float"][:, 0])[:count]
    outputs = model({name: features[name] for name in model.input}).numpy()[by_fare]
    return outputs, {name: tensor.numpy()[by_fare] for name, tensor in features.items()}


def class_names(outputs):
    """What an output above a half is called."""
    return ["lange Fahrt, über 5 €".encode() if value > 0.5 else b"short" for (value,) in outputs]


def without_label(row):
    return {name: values for name, values in row.items() if name not in ("tips", "ride")}


def test_vocabulary_sizes_are_counted_in_the_graph(packed):
    layout = FeatureLayout.from_transform_graph(packed.graph)
    assert layout is not None
    sizes = {column.name: column.vocabulary_size for column in layout.columns if column.is_id}
    assert sizes == {"company": 4 + 1, "hour": 24}  # 4 companies and one id for others


def test_serving_default_predicts_from_rows_without_the_label(exported):
    data, model, folder = exported
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    examples = [small_transform.serialized(without_label(row)) for row in eval_rows(data)]
    found = serve(examples=tf.constant(examples))["outputs"]
    np.testing.assert_allclose(found, expected(data, model)[0], atol=1e-6)


def test_transform_features_are_those_that_transform_wrote(exported):
    data, model, folder = exported
    transform = tf.saved_model.load(folder).signatures["transform_features"]
    found = transform(
        examples=tf.constant([small_transform.serialized(r) for r in eval_rows(data)])
    )
    wanted = expected(data, model)[1]
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, atol=1e-6)


def test_raw_takes_one_tensor_per_column(exported):
    data, model, folder = exported
    raw = tf.saved_model.load(folder).signatures["raw"]
    rows = eval_rows(data)
    columns = {
        "fare": tf.constant([row["fare"] for row in rows]),
        "company": tf.constant([row["company"] or [b""] for row in rows]),
        "hour": tf.constant([row["hour"] for row in rows], tf.int64),
    }
    wanted = set(raw.structured_input_signature[1])
    assert "tips" not in wanted
    found = raw(**{name: tensor for name, tensor in columns.items() if name in wanted})["outputs"]
    np.testing.assert_allclose(found, expected(data, model)[0], atol=1e-6)


def test_a_session_style_loader_finds_the_vocabulary(exported):
    data, model, folder = exported
    examples = [small_transform.serialized(without_label(row)) for row in eval_rows(data)]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder)
        signature = graph.signature_def["serving_default"]
        found, classes = session.run(
            [signature.outputs[name].name for name in ("outputs", "prediction")],
            {signature.inputs["examples"].name: examples},
        )
    wanted = expected(data, model)[0]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert classes[:, 0].tolist() == class_names(wanted)


@pytest.mark.slow
def test_the_readmes_export_explains_raw_rows_behind_plain_tft(transformed, tmp_path):
    """Reference: the model's predictions for the features that the export computes."""
    import tensorflow_transform as tft

    readme = Path(__file__).resolve().parents[3] / "components" / "input_gradients" / "README.md"
    code = re.findall(r"```python\n(.*?)```", readme.read_text(), flags=re.DOTALL)[-1]
    inputs = {
        "fare_scaled": keras.Input((1,), name="fare_scaled"),
        "company_id": keras.Input((1,), name="company_id", dtype="int64"),
    }
    embedded = keras.layers.Flatten()(keras.layers.Embedding(30, 4)(inputs["company_id"]))
    hidden = keras.layers.Dense(8, activation="tanh")(
        keras.layers.Concatenate()([inputs["fare_scaled"], embedded])
    )
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    folder = str(tmp_path / "model")
    scope = {
        "tft_output": tft.TFTransformOutput(transformed.graph),
        "model": model,
        "fn_args": types.SimpleNamespace(serving_model_dir=folder),
    }
    exec(code, scope)
    records = [small_transform.serialized(row) for row in transformed.raw["eval"][:50]]
    batch = ExamplesToRecordBatchDecoder().DecodeBatch(records)
    found = _attributions_of(batch, folder, "eval", 16).to_pandas()
    made = tf.saved_model.load(folder).signatures["transform_features"](tf.constant(records))
    features = {name: made[name] for name in model.input}
    names = ["attribution.fare_scaled", "attribution.company_id"]
    np.testing.assert_allclose(found["prediction"], model(features).numpy()[:, 0], atol=1e-6)
    start = model({name: tf.zeros_like(tensor) for name, tensor in features.items()})[:, 0]
    np.testing.assert_allclose(found[names].sum(axis=1), found["prediction"] - start, atol=1e-6)


def test_raw_takes_rows_of_different_length():
    """Reference: what parse_example makes of the same rows, which is what Transform has seen."""
    for dtype, rows, filler in [
        (tf.int64, [[1, 2], [], [-3], [4, 5, 6]], np.iinfo(np.int64).min),
        (tf.float32, [[1.0, 2.0], [], [-3.0], [4.0, 5.0, 6.0]], np.nan),
        (tf.string, [[b"a", b"b"], [], [b"c"], [b"d", b"e", b"f"]], b""),
    ]:
        spec = tf.io.VarLenFeature(dtype)
        longest = max(map(len, rows))
        filled = [row + [filler] * (longest - len(row)) for row in rows]
        found = _to_parsed(tf.constant(filled, dtype))
        examples = [small_transform.serialized({"x": row}) for row in rows]
        parsed = tf.io.parse_example(examples, {"x": spec})["x"]
        for name in ("indices", "values", "dense_shape"):
            np.testing.assert_array_equal(getattr(found, name), getattr(parsed, name), err_msg=name)


def test_argument_names_of_raw_are_what_tensorflow_accepts_and_unique():
    columns = ["fare", "area m2", "area_m2", "area-m2", "_x", "Größe", "%", "from", "self"]
    names = _argument_names(columns)
    assert names == {
        "fare": "fare",
        "area m2": "area_m2_1",
        "area_m2": "area_m2",
        "area-m2": "area_m2_2",
        "_x": "x",
        "Größe": "Gr__e",
        "%": "column",
        "from": "from_",
        "self": "self_",
    }


def column(name: str, kind: str, position: int, **more: Any) -> Column:
    values = {"source": name, "group": "g", "output": "packed_int", **more}
    return Column(name=name, kind=kind, position=position, **values)


LAYOUT = FeatureLayout(
    columns=(
        column("town", "vocabulary", 0, vocabulary="town", vocabulary_size=6, extra_ids=2),
        column("hour", "integer", 1, vocabulary_size=26),
        column("all", "vocabulary", 3, vocabulary="all", vocabulary_size=6),
        column("size", "z_score", 0, output="packed_float"),
        column("kind=a", "one_hot", 1, source="kind", output="packed_float"),
        column("kind_other", "one_hot", 2, source="kind", output="packed_float"),
        column("day_month", "date", 2, source="day", vocabulary_size=13),
        column("day_elapsed", "elapsed", 3, source="day", output="packed_float"),
        *(column(f"x{i}", "z_score", 4 + i, output="packed_float") for i in range(30)),
        column("at_hour_sin", "cyclic", 34, source="at", output="packed_float"),
    ),
    missing="packed_missing",
)


def test_ids_of_unseen_values_and_bits_of_dates():
    packed_int, packed_float = {"output": "packed_int"}, {"output": "packed_float"}
    missing = {"output": "packed_missing"}
    assert _input_checks(LAYOUT) == {
        # Ids 0 to 3 are values, 4 is an unseen one, 5 a missing one.
        "categories": [
            {"column": "town", **packed_int, "position": 0, "ids": [4, 4]},
            {"column": "hour", **packed_int, "position": 1, "ids": [24, 24]},
            {"column": "kind", **packed_float, "position": 2, "ids": [1, 1]},
        ],
        "dates": [
            {"column": "day", **missing, "word": 0, "bit": 6},
            {"column": "at", **missing, "word": 1, "bit": 6},
        ],
    }
    assert _input_checks(LAYOUT.model_copy(update={"missing": None}))["dates"] == []
