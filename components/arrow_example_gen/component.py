"""The ArrowExampleGen node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import any_pb2, struct_pb2
from tfx import v1 as tfx
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

from components.arrow_example_gen.executor import SHORTER_LISTS, Executor


class ArrowExampleGen(FileBasedExampleGen):
    """TFX's FileBasedExampleGen for Parquet files: its inputs, splits, spans and versions.

        ArrowExampleGen(input_base="data", input_config=..., output_config=...)

    Outputs:
        examples: Examples, tf.Examples in gzipped TFRecord files, a folder per split.
    """

    EXECUTOR_SPEC = BeamExecutorSpec(Executor)

    def __init__(self, *, shorter_lists: Sequence[str] = (), **arguments: Any):
        """Args:
        shorter_lists: names or globs of columns with lists of ints that lose their missing
            values, which tf.Example cannot hold among ints; such a value in any other list of
            ints ends the node, since what follows it would move up by one.
        **arguments: of FileBasedExampleGen, but for `custom_config`.
        """
        options = struct_pb2.Struct()
        options.update({SHORTER_LISTS: list(shorter_lists)})
        packed = any_pb2.Any()
        packed.Pack(options)
        super().__init__(custom_config=tfx.proto.CustomConfig(custom_config=packed), **arguments)
