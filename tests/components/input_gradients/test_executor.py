"""The executor on an exported linear model. Reference: weight * (x - baseline), 1e-6."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from command_line import ROOT
from tfrecords import serialized
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components import Attributions, AttributionSummary
from components.input_gradients.executor import Executor
from pipeline.engines.engine import BeamConfig
from trainer_module import input_gradients_signature

pytestmark = pytest.mark.slow(20)

ROWS = 240
COMPANIES = ["a", "b", "c"]
WEIGHTS = np.array([0.5, -2.0])
EMBEDDED = np.array([0.25, -1.0, 3.0])  # what the model adds for each company


def raw_rows(count=ROWS, seed=0):
    random = np.random.default_rng(seed)
    return [
        {
            "number": [i],
            "fare": [float(random.normal(10, 4))],
            "miles": [float(random.exponential(3))],
            "company": [] if i % 40 == 7 else [COMPANIES[i % 3].encode()],
        }
        for i in range(count)
    ]


def transformed(row):
    name = (row["company"] or [b"c"])[0].decode()
    return {
        "number": row["number"],
        "x": [(row["fare"][0] - 10) / 4, row["miles"][0]],
        "company_id": [COMPANIES.index(name)],
    }


def wanted(row):
    """Attributions of fare, miles and company to a baseline of zeros."""
    made = transformed(row)
    terms = WEIGHTS * np.float32(made["x"])
    return [*terms, EMBEDDED[made["company_id"][0]] - EMBEDDED[0]]


def examples(folder: Path, rows, *, files=2, parquet=False):
    """An artifact with the split eval, and an empty split, of TFRecord or Parquet files."""
    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = str(folder), '["eval", "none"]'
    for split, found in (("eval", rows), ("none", [])):
        (folder / f"Split-{split}").mkdir(parents=True)
        for number in range(files):
            path = folder / f"Split-{split}" / f"data-{number:05d}-of-{files:05d}"
            records = [serialized(row) for row in found[number::files]]
            if parquet:
                pq.write_table(as_lists(records), f"{path}.parquet", row_group_size=30)
                continue
            with tf.io.TFRecordWriter(f"{path}.gz", tf.io.TFRecordOptions("GZIP")) as writer:
                for record in records:
                    writer.write(record)
    if parquet:
        payload: Any = example_gen_pb2.PayloadFormat
        examples_utils.set_payload_format(artifact, payload.FORMAT_PARQUET)
    return artifact


def as_lists(records):
    """A table of large lists, as TFX's Transform writes Parquet; empty where there is no value."""
    batch = ExamplesToRecordBatchDecoder().DecodeBatch(records)
    columns = [
        pa.array([values or [] for values in column.to_pylist()], column.type)
        for column in batch.columns
    ]
    return pa.table(columns, batch.schema.names)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An export with `transform_features` and `input_gradients`; it knows no layout."""
    artifact = standard_artifacts.Model()
    artifact.uri = str(tmp_path_factory.mktemp("model"))
    x = keras.Input((2,), name="x")
    company = keras.Input((1,), name="company_id", dtype="int64")
    embedding = keras.layers.Embedding(3, 1, name="companies")
    dense = keras.layers.Dense(1)
    joined = keras.layers.Concatenate()([x, keras.layers.Flatten()(embedding(company))])
    trained = keras.Model({"x": x, "company_id": company}, dense(joined))
    embedding.set_weights([EMBEDDED[:, np.newaxis]])
    dense.set_weights([np.append(WEIGHTS, 1.0)[:, np.newaxis], np.array([7.0])])
    raw = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("fare", "miles")}
    raw["company"] = tf.io.FixedLenFeature([], tf.string, "c")

    def transform_features(examples):
        row = tf.io.parse_example(examples, raw)
        ids = (
            2
            - tf.cast(row["company"] == "b", tf.int64)
            - 2 * tf.cast(row["company"] == "a", tf.int64)
        )
        return {
            "x": tf.stack([(row["fare"] - 10) / 4, row["miles"]], axis=1),
            "company_id": ids[:, tf.newaxis],
        }

    archive = keras.export.ExportArchive()
    archive.track(trained)
    text = tf.TensorSpec([None], tf.string, name="examples")
    archive.add_endpoint("transform_features", transform_features, [text])
    specs = {
        "x": tf.TensorSpec([None, 2], tf.float32),
        "company_id": tf.TensorSpec([None, 1], tf.int64),
    }
    archive.add_endpoint("input_gradients", input_gradients_signature(trained, specs))
    archive.write_out(f"{artifact.uri}/Format-Serving", verbose=False)
    return artifact


class Run:
    """Execute the node once on an engine, into a new folder."""

    def __init__(self, folder, examples, model, *, engine="in_memory", **parameters: Any):
        output = Attributions()
        output.uri = str(folder / "attributions")
        options = {"rows": 2000, "steps": 4, "split": "eval", **parameters}
        context = Executor.Context(beam_pipeline_args=BeamConfig(engine=engine).pipeline_args())
        inputs = {"examples": [examples], "model": [model]}
        Executor(context).Do(inputs, {"attributions": [output]}, options)
        self.files = sorted(Path(output.uri, "rows").iterdir())
        self.rows = pd.read_parquet(Path(output.uri, "rows"))
        text = Path(output.uri, "summary.json").read_text()
        self.summary = AttributionSummary.model_validate_json(text)

    @property
    def attributions(self) -> np.ndarray:
        return self.rows[["attribution.x[0]", "attribution.x[1]", "attribution.company_id"]].values


@pytest.fixture(scope="module")
def raw_run(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    return Run(folder, examples(folder / "in", raw_rows()), model)


def test_of_a_linear_model_attributions_are_its_terms(raw_run):
    rows = raw_rows()
    numbers = raw_run.rows["raw.number"].str[0]
    assert sorted(numbers) == list(range(ROWS))
    expected = np.array([wanted(rows[number]) for number in numbers])
    np.testing.assert_allclose(raw_run.attributions, expected, rtol=1e-6, atol=1e-6)
    predictions = 7.0 + EMBEDDED[0] + expected.sum(axis=1)
    np.testing.assert_allclose(raw_run.rows["prediction"], predictions, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(raw_run.rows["baseline_prediction"], 7.25)
    assert raw_run.rows["completeness_error"].abs().max() < 1e-5


def test_the_summary_has_the_means(raw_run):
    summary = raw_run.summary
    assert summary.rows == ROWS
    found = raw_run.attributions
    means = list(summary.mean_absolute.values())
    np.testing.assert_allclose(means, np.abs(found).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(list(summary.mean.values()), found.mean(axis=0), rtol=1e-5)
    assert summary.strongest(1) == [max(summary.mean_absolute.items(), key=lambda item: item[1])]
    # The raw columns stand beside: each row of a company has the same id.
    of_b = raw_run.rows["raw.company"].str[0] == b"b"
    adds = raw_run.rows["attribution.company_id"][of_b]
    np.testing.assert_allclose(adds, EMBEDDED[1] - EMBEDDED[0], rtol=1e-6)
    assert of_b.sum() == ROWS / 3 - sum(i % 3 == 1 for i in range(7, ROWS, 40))


def test_the_readmes_code_reads_the_artifact(raw_run, capsys):
    readme = (ROOT / "components" / "input_gradients" / "README.md").read_text(encoding="utf-8")
    program = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)[1]
    program = program.replace("payment_type", "company").replace(
        "attribution.fare", "attribution.x[0]"
    )
    exec(program, {"uri": raw_run.files[0].parents[1]})
    assert "raw.company" in capsys.readouterr().out


def test_the_sample_depends_on_the_rows_alone(model, raw_run, tmp_path):
    """Other files, order, format and engine: the same bytes, and rows of the run with all rows.

    `tests/pipeline/engines/test_flink.py` has Flink and several processes.
    """
    rows = raw_rows()
    few = Run(tmp_path / "1", examples(tmp_path / "a", rows), model, rows=50)
    others = examples(tmp_path / "b", rows[::-1], files=3, parquet=True)
    same = Run(tmp_path / "2", others, model, rows=50, engine="portable")
    assert [file.read_bytes() for file in few.files] == [file.read_bytes() for file in same.files]
    assert len(few.rows) == few.summary.rows == 50
    np.testing.assert_allclose(few.attributions, raw_run.attributions[:50], rtol=1e-6)


def test_errors_name_the_value_and_what_fits(model, tmp_path):
    few, broken = raw_rows(20), raw_rows(20)
    for row, value in zip(broken, [np.nan, np.inf, 1e38], strict=False):
        row["miles"] = [value]
    lacking = [{"miles": row["miles"]} for row in few]
    for i, (rows, split, message) in enumerate(
        (
            (few, "none", "split 'none'.*has no row"),
            (few, "test", "split='test'.*eval"),
            (lacking, "eval", r"does not fit.*x: .*Feature: .* is required.*raw"),
            (broken, "eval", r"2 of 20 rows of split 'eval' .* not finite.*features"),
        )
    ):
        with pytest.raises(Exception, match=message):
            Run(tmp_path / f"{i}", examples(tmp_path / f"{i}in", rows), model, split=split)


def test_a_model_without_the_signature_is_rejected(tmp_path):
    module = tf.Module()
    serve = tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([None], name="x")])
    tf.saved_model.save(module, str(tmp_path / "Format-Serving"), {"serving_default": serve})
    artifact = standard_artifacts.Model()
    artifact.uri = str(tmp_path)
    with pytest.raises(ValueError, match=r"'input_gradients'.*serving_default.*explain"):
        Run(tmp_path, examples(tmp_path / "in", raw_rows(3)), artifact)
