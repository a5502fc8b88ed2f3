"""The pushed taxi model asked as servers and Beam ask it, against what `predict` says of the rows.

Tolerance: 1e-6 (float32; batches of another size add up in another order).
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfx
from tfrecords import serialized_rows

from pipeline.cli.cli import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(tfx.__file__).parent / "examples/chicago_taxi_pipeline/data/simple/data.csv"
ROWS = 64
# tensorflow_model_server in ten lines: one PredictRequest a file, one PredictResponse each.
SERVER = """
import importlib.util, pathlib, sys
sys.path[:] = [entry for entry in sys.path if entry != sys.argv[3]]
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
assert importlib.util.find_spec("trainer_module") is None, sys.path
model = tf.saved_model.load(sys.argv[1])
for file in sorted(pathlib.Path(sys.argv[2]).glob("*.request")):
    request = predict_pb2.PredictRequest.FromString(file.read_bytes())
    signature = model.signatures[request.model_spec.signature_name]
    given = {name: tf.constant(tf.make_ndarray(each)) for name, each in request.inputs.items()}
    response = predict_pb2.PredictResponse(model_spec=request.model_spec)
    for name, tensor in signature(**given).items():
        response.outputs[name].CopyFrom(tf.make_tensor_proto(tensor.numpy()))
    file.with_suffix(".response").write_bytes(response.SerializeToString())
"""


@pytest.fixture(scope="module")
def rows(taxi, tmp_path_factory):
    """Rows of the CSV by column, as values of the types that the model lists; None: missing."""
    kinds = {"string": str.encode, "float32": float, "int64": int}
    listed = json.loads((taxi.pushed / "assets.extra" / "raw_columns.json").read_text())["columns"]
    with DATA.open(newline="") as stream:
        found = list(csv.DictReader(stream))[:ROWS]
    columns = {
        each["name"]: [
            kinds[each["dtype"]](row[each["name"]]) if row[each["name"]] else None for row in found
        ]
        for each in listed
    }
    assert any(None in values for values in columns.values())
    return columns


@pytest.fixture(scope="module")
def examples(rows):
    """The rows as tf.Examples, serialized; a missing value is a feature that is not there."""
    return serialized_rows(rows)


@pytest.fixture(scope="module")
def predicted(taxi, tmp_path_factory):
    """What `python -m pipeline predict` says of the same rows."""
    folder = tmp_path_factory.mktemp("predicted")
    lines = DATA.read_text().splitlines()[: ROWS + 1]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    arguments = ["--model", str(taxi.pushed), "--data", str(folder / "rows.csv")]
    assert main(["predict", *arguments, "--output", str(folder / "out.csv")]) == 0
    with (folder / "out.csv").open(newline="") as stream:
        found = list(csv.DictReader(stream))
    assert len(found) == ROWS
    return [float(row["probability_1"]) for row in found], [row["prediction"] for row in found]


@pytest.fixture(scope="module")
def responses(taxi, rows, examples, tmp_path_factory):
    """Signature -> output -> values, answered by a process that has not this package."""
    from tensorflow_serving.apis import predict_pb2

    fillers = {bytes: b"", float: np.nan, int: np.iinfo(np.int64).min}
    types = {bytes: object, float: np.float32, int: np.int64}
    columns = {}
    for name, values in rows.items():
        kind = type(next(value for value in values if value is not None))
        filled = [fillers[kind] if value is None else value for value in values]
        columns[name] = np.array(filled, types[kind])[:, None]  # a list of values a row
    asked = {
        "serving_default": {"examples": np.array(examples, object)},
        "transform_features": {"examples": np.array(examples, object)},
        "raw": columns,
    }
    folder = tmp_path_factory.mktemp("requests")
    for signature, inputs in asked.items():
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "chicago-taxi"
        request.model_spec.signature_name = signature
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
        (folder / f"{signature}.request").write_bytes(request.SerializeToString())
    subprocess.run(
        [sys.executable, "-I", "-c", SERVER, str(taxi.pushed), str(folder), str(ROOT)],
        cwd=folder,
        check=True,
        timeout=300,
    )
    found = {}
    for signature in asked:
        written = (folder / f"{signature}.response").read_bytes()
        response = predict_pb2.PredictResponse.FromString(written)
        found[signature] = {n: tf.make_ndarray(each) for n, each in response.outputs.items()}
    return found


@pytest.mark.parametrize("signature", ["serving_default", "raw"])
def test_a_server_answers_what_predict_says(responses, predicted, signature):
    answer = responses[signature]
    np.testing.assert_allclose(answer["probabilities"][:, 1], predicted[0], atol=1e-6)
    assert [value.decode() for value in answer["prediction"].ravel()] == predicted[1]


def test_a_server_transforms_as_transform_did(responses, taxi, examples):
    """Reference: Transform's own graph, read by TFT."""
    import tensorflow_transform as tft

    (graph,) = taxi.folder.glob("artifacts/Transform/transform_graph/*")
    output = tft.TFTransformOutput(str(graph))
    parsed = tf.io.parse_example(tf.constant(examples), output.raw_feature_spec())
    layer = output.transform_features_layer()
    wanted = layer(parsed)
    answer = responses["transform_features"]
    assert {"packed_float", "packed_int"} <= set(answer)
    for name, values in answer.items():
        np.testing.assert_allclose(values, wanted[name], atol=1e-6, err_msg=name)


def test_beams_run_inference_answers_what_predict_says(taxi, examples, predicted):
    """TFX's RunInference with PredictionLogs, and Beam's own with a handler of the signature."""
    import apache_beam as beam
    from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.testing.util import assert_that
    from tfx_bsl.public.beam import RunInference as RunInferenceOfTfx
    from tfx_bsl.public.proto import model_spec_pb2

    model, wanted = str(taxi.pushed), dict(zip(examples, predicted[0], strict=True))

    class Served(ModelHandler):
        def load_model(self):
            return tf.saved_model.load(model)

        def run_inference(self, batch, model, inference_args=None):
            found = model.signatures["serving_default"](examples=tf.constant(list(batch)))
            answers = zip(batch, found["probabilities"].numpy(), strict=True)
            return [PredictionResult(example, answer) for example, answer in answers]

    def of_log(log):
        outputs = tf.make_ndarray(log.predict_log.response.outputs["probabilities"])
        (example,) = tf.make_ndarray(log.predict_log.request.inputs["examples"]).ravel()
        return example, outputs.ravel()[1]

    def are_predicted(found):
        assert len(found) == ROWS
        given = [wanted[example] for example, _ in found]
        np.testing.assert_allclose([value for _, value in found], given, atol=1e-6)

    spec = model_spec_pb2.SavedModelSpec(model_path=model, signature_name=["serving_default"])
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        asked = pipeline | beam.Create(examples)
        logs = asked | RunInferenceOfTfx(model_spec_pb2.InferenceSpecType(saved_model_spec=spec))
        assert_that(logs | beam.Map(of_log), are_predicted, "TFX's")
        results = asked | RunInference(Served())
        pairs = results | beam.Map(lambda each: (each.example, each.inference[1]))
        assert_that(pairs, are_predicted, "Beam's")
