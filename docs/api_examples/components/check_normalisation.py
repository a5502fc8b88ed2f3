"""Reads the transformed examples once, and stops the pipeline if a column breaks a limit."""

from tfx import v1 as tfx

from components import NormalizationLimits, NormalizationValidator

artifacts = tfx.types.standard_artifacts
validator = NormalizationValidator(
    examples=tfx.dsl.Channel(type=artifacts.Examples),  # of a Transform
    transform_graph=tfx.dsl.Channel(type=artifacts.TransformGraph),
    limits=NormalizationLimits(kinds={"trip_*": "z_score", "fare": "min_max"}),
)
print(sorted(validator.outputs))  # ['blessing', 'report']
