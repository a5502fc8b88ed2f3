"""The ArrowExampleGen node."""

from __future__ import annotations

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

from components.arrow_example_gen.executor import Executor


class ArrowExampleGen(FileBasedExampleGen):
    """TFX's FileBasedExampleGen for Parquet files: its inputs, splits, spans and versions.

        ArrowExampleGen(input_base="data", input_config=..., output_config=...)

    Outputs:
        examples: Examples, tf.Examples in gzipped TFRecord files, a folder per split.
    """

    EXECUTOR_SPEC = BeamExecutorSpec(Executor)
