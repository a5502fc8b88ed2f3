"""Pictures from a Parquet file to a pushed model, whose answers are those of training.

200 of scikit-learn's digits as PNGs of 64 x 64. Reference: the Keras model on the features that the
trainer reads; tolerance 1e-6 (batches of another size add up in another order).
"""

from __future__ import annotations

import csv
import json
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import yaml
from command_line import Result, run_here
from tfrecords import serialized_rows

from pipeline.page.importance import _measure
from shared_core.images import read_images
from transform import column_chains

pytestmark = pytest.mark.pipelines
ROWS = 200
CONFIG = yaml.safe_load("""
name: digits
data: {path: digits.parquet, source: parquet}
features:
  groups:
    - {name: colour, columns: [image], encode: {image: {height: 32, width: 32}}}
    - name: grey
      columns: [photo]
      encode: {image: {height: 16, width: 12, channels: 1, resize: pad, store: encoded}}
    - {name: numbers, columns: [ink], scale: z_score}
  label: {column: digit, kind: multiclass}
training:
  global_batch_size: 32
  micro_batch_size: 8
  epochs: 1
  model: {kind: conv, filters: [8]}
evaluation:
  require_better_than_constant: false
  thresholds: {sparse_categorical_accuracy: {lower_bound: 0.0}}
output: {folder: out}
""")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    folder = tmp_path_factory.mktemp("images")
    pixels = np.repeat(np.repeat(digits.images[:ROWS] * 255 / 16, 8, axis=1), 8, axis=2)
    files = [tf.io.encode_png(each[..., None]).numpy() for each in pixels.astype(np.uint8)]
    pictures = dict.fromkeys(("image", "photo"), pa.array(files, pa.binary()))
    ink, digit = pixels.mean(axis=(1, 2)), digits.target[:ROWS]
    table = pa.table({**pictures, "ink": ink, "digit": digit})
    pq.write_table(table, folder / "digits.parquet")
    (folder / "p.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Result:
    result = run_here("run", folder / "p.yaml")
    assert result.code == 0, result.output
    return result


@pytest.fixture(scope="module")
def pushed(folder: Path, run: Result) -> Path:
    (version,) = (folder / "out" / "serving_model").iterdir()
    return version


def graph_of(folder: Path) -> Path:
    (graph,) = (folder / "out").glob("artifacts/Transform/transform_graph/*")
    return graph


def test_every_node_knows_pictures(folder: Path, run: Result) -> None:
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert {each["name"]: each["result"] for each in summary["nodes"]}["Pusher"] == "done"
    assert [each["name"] for each in summary["baselines"]] == ["constant"]
    assert "the model takes pictures (image, photo)" in (
        next((folder / "out").glob("artifacts/Trainer/model_run/*/baselines.json")).read_text()
    )
    (report,) = (folder / "out").glob("artifacts/NormalizationValidator/report/*/report.json")
    columns = json.loads(report.read_text())["splits"][0]["columns"]
    names = ["ink", *(f"image[{i}]" for i in range(3)), "photo[0]"]
    assert [column["name"] for column in columns] == names
    for column in columns:
        assert column["mean"] == pytest.approx(0, abs=1e-6)
        assert column["std"] == pytest.approx(1, abs=1e-6)
    assert {chain.column for chain in column_chains(str(graph_of(folder)))} >= {"image", "photo"}


def test_predictions_are_those_of_training(folder: Path, pushed: Path, tmp_path: Path) -> None:
    from trainer_module.config import TrainerConfig
    from trainer_module.data.input_pipeline import summarise
    from trainer_module.model.data_context import model_context
    from trainer_module.model.default_model import default_model
    from trainer_module.tfx.data import open_data
    from trainer_module.tfx.export import export_model

    (examples,) = (folder / "out").glob("artifacts/Transform/transformed_examples/*")
    files = {f"{split}_files": [f"{examples}/Split-{split}/*"] for split in ("train", "eval")}
    fn_args = types.SimpleNamespace(transform_output=str(graph_of(folder)), **files)
    config = TrainerConfig.parse({"global_batch_size": 32, "model": CONFIG["training"]["model"]})
    data = open_data(fn_args, config)
    context = model_context(config, data, summarise(data.train))
    assert context.feature_spec["image"].shape == (32, 32, 3)
    assert context.feature_spec["photo"].dtype == tf.uint8
    model = default_model(context)
    expected = {}
    for part in (
        data.train,
        data.train.__class__(
            data.eval_files,
            **{name: getattr(data.train, name) for name in ("feature_spec", "label", "images")},
        ),
    ):
        for features, _ in part.batches(64):
            keys = [each.numpy().tobytes() for each in features["image"]]
            expected |= dict(zip(keys, model(features).numpy(), strict=True))
    inputs = list(context.feature_spec)
    place = str(tmp_path / "model")
    export_model(model, data.transform_output, place, inputs=inputs, layout=data.layout)
    table = pq.read_table(folder / "digits.parquet").to_pydict()
    raw = {name: table[name] for name in ("image", "photo", "ink")}
    signatures = tf.saved_model.load(place).signatures
    served = signatures["serving_default"](examples=tf.constant(serialized_rows(raw)))["outputs"]
    by_column = {name: tf.constant(values)[:, None] for name, values in raw.items()}
    np.testing.assert_allclose(signatures["raw"](**by_column)["outputs"], served, atol=1e-6)
    transformed = signatures["transform_features"](examples=tf.constant(serialized_rows(table)))
    pixels = read_images(transformed, data.layout.images)["image"].numpy()
    wanted = [expected[each.tobytes()] for each in pixels]
    np.testing.assert_allclose(served, wanted, atol=1e-6)


def test_predict_and_the_page_read_the_pushed_model(
    folder: Path, pushed: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.csv"
    data = ["--data", folder / "digits.parquet", "--output", output]
    result = run_here("predict", "--model", pushed, *data)
    assert result.code == 0, result.output
    assert len(list(csv.DictReader(output.open()))) == ROWS
    (model,) = (folder / "out").glob("artifacts/Trainer/model/*/Format-Serving")
    (rows,) = (folder / "out").glob("artifacts/ArrowExampleGen/examples/*/Split-eval")
    assert set(_measure(model, rows).sizes) == {"image", "photo", "ink"}


def test_a_request_has_the_pictures_in_base64(folder: Path, pushed: Path) -> None:
    from pipeline.serving.model import read_model, request_body

    body = json.loads(
        request_body("kserve", read_model(str(pushed)), str(folder / "digits.parquet"), None)
    )
    assert [list(cell) for cell in body["instances"][0]["image"]] == [["b64"]]
