"""TFX's Evaluator on tf.Examples by TFMA alone, and on Parquet by columns and by rows.

Reference: TFX's Evaluator without `module_path` on the same rows as tf.Examples. Tolerance: 1e-6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfrecords import serialized
from tfx.components.evaluator.executor import Executor
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts
from tfx.types.artifact import Artifact
from tfx.utils import io_utils
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from pipeline.config.evaluation import EvaluationConfig

SPEC = {name: tf.io.FixedLenFeature([1], tf.float32, 0.0) for name in ("x", "tip", "w")}


class Model(tf.Module):
    """A model that returns sigmoid(slope * x), and the label under another name."""

    def __init__(self, slope: float):
        super().__init__()
        self.slope = tf.Variable(slope)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples):
        return {"outputs": tf.sigmoid(self.slope * tf.io.parse_example(examples, SPEC)["x"])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples):
        parsed = tf.io.parse_example(examples, SPEC)
        return {"y": parsed["tip"], "w": parsed["w"]}


def write_model(folder: Path, slope: float) -> Artifact:
    model = Model(slope)
    signatures = {"serving_default": model.serve, "transform_features": model.transform}
    tf.saved_model.save(model, str(folder / "Format-Serving"), signatures)
    artifact = standard_artifacts.Model()
    artifact.uri = str(folder)
    return artifact


def write_examples(folder: Path, schema: schema_pb2.Schema) -> dict[str, Any]:
    """Write the same rows as tf.Examples and as Parquet; return both artifacts."""
    random, rows = np.random.default_rng(0), []
    for i in range(300):
        x, row = random.normal(), {}
        if i % 7:
            row["x"] = x
        row["tip"] = float(x + random.normal() > 0)
        row["w"] = random.choice([0.5, 1.0, 2.0])
        if i % 5:
            row["city"] = random.choice([b"Ulm", b"Bonn"])
        rows.append(serialized(row))
    artifacts = {name: standard_artifacts.Examples() for name in ("tf_example", "parquet")}
    for name, artifact in artifacts.items():
        artifact.uri, artifact.split_names = str(folder / name), '["eval"]'
        (folder / name / "Split-eval").mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "tf_example/Split-eval/rows.gz"), "GZIP") as writer:
        for row in rows:
            writer.write(row)
    batch = ExamplesToRecordBatchDecoder(schema.SerializeToString()).DecodeBatch(rows)
    columns = [
        pa.array([values or [] for values in column.to_pylist()], column.type)
        for column in batch.columns
    ]
    table = pa.Table.from_arrays(columns, batch.schema.names)
    pq.write_table(table, folder / "parquet/Split-eval/rows.parquet", row_group_size=70)
    artifacts["parquet"].set_string_custom_property("payload_format", "FORMAT_PARQUET")
    return artifacts


def values_of(folder: str) -> dict[Any, float]:
    """Return the numbers of both models by model, slice and name."""
    results = tfma.load_eval_results([folder], model_name=None).get_results()
    return {
        (model, key, name): value["doubleValue"]
        for model, result in enumerate(results)
        for key, outputs in result.slicing_metrics
        for name, value in outputs[""][""].items()
        if "doubleValue" in value
    }


@pytest.mark.slow(15)
def test_parquet_gives_the_metrics_of_tf_examples(tmp_path: Path) -> None:
    schema = schema_pb2.Schema()
    schema.feature.add(name="city", type=schema_pb2.BYTES)
    for name in SPEC:
        schema.feature.add(name=name, type=schema_pb2.FLOAT)
    schema_artifact = standard_artifacts.Schema()
    schema_artifact.uri = str(tmp_path / "schema")
    io_utils.write_pbtxt_file(f"{schema_artifact.uri}/schema.pbtxt", schema)
    examples = write_examples(tmp_path / "examples", schema)
    models = [write_model(tmp_path / f"model-{slope}", slope) for slope in (1.0, 0.5)]
    evaluation = EvaluationConfig.model_validate(
        {"slices": ["city"], "thresholds": {"auc": {"lower_bound": 0.5, "max_loss": 0.1}}}
    )

    def evaluate(name: str, data: str, *, by_columns: bool, **options: int) -> Any:
        config = evaluation.eval_config(label="y", kind="binary", weight="w")
        for option, value in options.items():
            getattr(config.options, option).value = value
        found, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
        found.uri, blessing.uri = f"{tmp_path}/{name}/evaluation", f"{tmp_path}/{name}/blessing"
        properties = {
            "eval_config": json_format.MessageToJson(config),
            "example_splits": '["eval"]',
            "fairness_indicator_thresholds": "null",
            **({"module_path": "components.column_evaluation"} if by_columns else {}),
        }
        context = BaseBeamExecutor.Context(
            beam_pipeline_args=["--runner=FnApiRunner", "--sdk_container_image=unused"],
            tmp_dir=str(tmp_path / name / "tmp"),
            unique_id="1",
        )
        Executor(context).Do(
            {
                "examples": [examples[data]],
                "model": models[:1],
                "baseline_model": models[1:],
                "schema": [schema_artifact],
            },
            {"evaluation": [found], "blessing": [blessing]},
            properties,
        )
        assert Path(blessing.uri, "BLESSED").exists()
        return values_of(found.uri)

    expected = evaluate("reference", "tf_example", by_columns=False)
    assert expected[0, (("city", "Ulm"),), "rows"] == 107
    for name, options in (("columns", {}), ("rows", {"min_slice_size": 2})):
        found = evaluate(name, "parquet", by_columns=True, **options)
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert found[key] == pytest.approx(value, rel=1e-6, abs=1e-9, nan_ok=True), key
