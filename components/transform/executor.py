"""The Transform node: TFX's executor, with record batches from the reader to the writer.

TFX makes a tf.Example of each transformed row (or a Python dictionary, where the raw examples are
Parquet), which costs more than the transformation. Here, the record batches that the graph returns
are written as they are.
"""

from __future__ import annotations

import types
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components import Transform
from tfx.components.transform import executor as tfx_executor
from tfx.components.transform import executor_utils
from tfx.components.util import examples_utils
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.proto import example_gen_pb2
from tfx.types.artifact import Artifact
from tfx.types.standard_component_specs import (
    EXAMPLES_KEY,
    SPLITS_CONFIG_KEY,
    TRANSFORM_GRAPH_KEY,
    TRANSFORMED_EXAMPLES_KEY,
)
from tfx_bsl.tfxio.parquet_tfxio import ParquetTFXIO
from tfx_bsl.tfxio.tfxio import TFXIO

from components.transform.image_statistics import write_image_statistics
from components.transform.record_batches import BoundedParquet, WriteTransformed

FORMAT_PARQUET = example_gen_pb2.PayloadFormat.FORMAT_PARQUET  # pyright: ignore
FILE_FORMAT_PARQUET = "FILE_FORMAT_PARQUET"


class _Processor(tfx_executor.TransformProcessor):
    """Reads Parquet in bounded batches, and writes Parquet."""

    def _CreateTFXIO(self, dataset: Any, schema: schema_pb2.Schema) -> TFXIO:
        found = super()._CreateTFXIO(dataset, schema)
        if isinstance(found, ParquetTFXIO):
            return BoundedParquet(
                dataset.file_pattern, schema=schema, telemetry_descriptors=["Transform"]
            )
        return found

    def _EncodeAndWrite(
        self, schema: schema_pb2.Schema, file_format: str, output_path: str
    ) -> WriteTransformed:
        return WriteTransformed(schema, output_path)


class Executor(tfx_executor.Executor):
    """Runs as TFX's executor does, and marks the transformed examples as Parquet."""

    # TFX's `Do` finds its processor under a global name. This is its code with our class under the
    # same name, so that TFX's module stays as it is for other nodes of the process.
    _do = types.FunctionType(
        tfx_executor.Executor.Do.__code__,
        {**vars(tfx_executor), tfx_executor.TransformProcessor.__name__: _Processor},
    )

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Analyze and transform the examples, tf.Examples or Parquet; see TFX's executor."""
        self._do(input_dict, output_dict, exec_properties)
        written = output_dict.get(TRANSFORMED_EXAMPLES_KEY) or []
        for examples in written:
            examples_utils.set_payload_format(examples, FORMAT_PARQUET)
            examples_utils.set_file_format(examples, FILE_FORMAT_PARQUET)
        config = exec_properties.get(SPLITS_CONFIG_KEY)
        analyzed = executor_utils.ResolveSplitsConfig(config, input_dict[EXAMPLES_KEY]).analyze
        folders = [f"{each.uri}/Split-{split}" for each in written for split in analyzed]
        write_image_statistics(output_dict[TRANSFORM_GRAPH_KEY][0].uri, folders)


class ParquetTransform(Transform):
    """TFX's Transform, which writes Parquet in place of tf.Examples; its arguments are TFX's.

        ParquetTransform(
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            preprocessing_fn="transform.preprocessing_fn",
            custom_config={"features": {...}},
        )

    Outputs:
        transform_graph: As TFX writes it; with pictures, `image_statistics.json` too.
        transformed_examples: Examples of the payload format `FORMAT_PARQUET`, a folder per split.
        updated_analyzer_cache, and statistics: as TFX writes them.
    """

    EXECUTOR_SPEC = BeamExecutorSpec(Executor)
