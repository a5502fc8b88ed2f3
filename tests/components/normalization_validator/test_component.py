"""The node: what it refuses, and that every target can compile it."""

from __future__ import annotations

import json

import pytest
import yaml
from tfx import v1 as tfx
from tfx.orchestration.kubeflow.v2 import compiler_utils, kubeflow_v2_dag_runner
from tfx.types import standard_artifacts
from tfx.types.channel import Channel
from tfx.utils import import_utils

from components import (
    NormalizationBlessing,
    NormalizationLimits,
    NormalizationReport,
    NormalizationValidator,
)


def _node(**options) -> NormalizationValidator:
    return NormalizationValidator(
        examples=Channel(type=standard_artifacts.Examples),
        transform_graph=Channel(type=standard_artifacts.TransformGraph),
        **options,
    )


def test_limits_become_one_json_parameter():
    node = _node(limits=NormalizationLimits(allow_constant=False), on_failure="warn")
    assert node.exec_properties["on_failure"] == "warn"
    assert json.loads(node.exec_properties["limits"])["allow_constant"] is False
    assert _node().exec_properties == _node(limits={}).exec_properties
    assert sorted(node.outputs) == ["blessing", "report"]


def test_an_unknown_on_failure_is_refused_with_the_two_that_exist():
    with pytest.raises(ValueError, match=r"on_failure='stop' is unknown: use \"fail\" .* \"warn\""):
        _node(on_failure="stop")


def test_an_unknown_limit_is_refused():
    with pytest.raises(ValueError, match=r"z_scor\n.*Extra inputs are not permitted"):
        _node(limits={"z_scor": {}})


def _pipeline(folder) -> tfx.dsl.Pipeline:
    examples = tfx.components.ImportExampleGen(input_base=str(folder))
    schema = tfx.components.ImportSchemaGen(schema_file=str(folder / "schema.pbtxt"))
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn="somewhere.preprocessing_fn",
    )
    validator = NormalizationValidator(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
    )
    return tfx.dsl.Pipeline(
        pipeline_name="normalization",
        pipeline_root=str(folder / "root"),
        components=[examples, schema, transform, validator],
        beam_pipeline_args=["--runner=FnApiRunner"],
    )


@pytest.mark.parametrize("schema_2_1", [False, True])
def test_it_compiles_for_kubeflow(tmp_path, schema_2_1):
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(
        config=kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
            default_image="image", use_pipeline_spec_2_1=schema_2_1
        ),
        output_dir=str(tmp_path),
        output_filename="spec.json",
    )
    runner.run(_pipeline(tmp_path))
    spec = json.loads((tmp_path / "spec.json").read_text())
    spec = spec.get("pipelineSpec", spec)
    container = spec["deploymentSpec"]["executors"]["NormalizationValidator_executor"]["container"]
    assert "components.normalization_validator.executor.Executor" in container["args"]
    outputs = spec["components"]["NormalizationValidator"]["outputDefinitions"]["artifacts"]
    assert sorted(outputs) == ["blessing", "report"]


def test_a_compiled_type_is_found_again_by_its_name():
    """What TFX's container entrypoint does with the title that the compiler wrote."""
    for artifact_type in [NormalizationReport, NormalizationBlessing]:
        schema = yaml.safe_load(compiler_utils.get_artifact_schema(artifact_type))
        assert import_utils.import_class_by_path(schema["title"]) is artifact_type
