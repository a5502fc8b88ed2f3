"""The node: what it refuses, and that every target can compile it."""

from __future__ import annotations

import json

import pytest
import yaml
from tfx.orchestration.kubeflow.v2 import compiler_utils
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
    with pytest.raises(ValueError, match=r"on_failure='stop' is unknown: use \"fail\" .* \"warn\""):
        _node(on_failure="stop")


def test_a_compiled_type_is_found_again_by_its_name():
    """What TFX's container entrypoint does with the title that the compiler wrote."""
    for artifact_type in [NormalizationReport, NormalizationBlessing]:
        schema = yaml.safe_load(compiler_utils.get_artifact_schema(artifact_type))
        assert import_utils.import_class_by_path(schema["title"]) is artifact_type
