"""The Transform node."""

from __future__ import annotations

from tfx.components import Transform
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

from components.transform.executor import Executor


class ParquetTransform(Transform):
    """TFX's Transform, which writes Parquet in place of tf.Examples; its arguments are TFX's.

        ParquetTransform(
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            preprocessing_fn="transform.preprocessing_fn",
            custom_config={"features": {...}},
        )

    Outputs:
        transform_graph: TransformGraph, as TFX writes it.
        transformed_examples: Examples of the payload format `FORMAT_PARQUET`, a folder per split.
        updated_analyzer_cache, and statistics: as TFX writes them.
    """

    EXECUTOR_SPEC = BeamExecutorSpec(Executor)
