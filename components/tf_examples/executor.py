"""Read record batches by TFXIO, and write their rows as tf.Examples."""

from __future__ import annotations

import os
from typing import Any

import apache_beam as beam
from tfx.components.util import examples_utils, tfxio_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact

from components.arrow_example_gen.columns import serialize

EXAMPLES_KEY = "examples"
TF_EXAMPLES_KEY = "tf_examples"

_FORMAT: Any = example_gen_pb2.FORMAT_TF_EXAMPLE  # pyright: ignore[reportAttributeAccessIssue]
_FILE_FORMAT = "tfrecords_gzip"
_FILES = "data_tfrecord"  # as TFX names them


class Executor(BaseBeamExecutor):
    """Converts every split."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Write the rows of each split; see `serialize` for what becomes of missing values."""
        self._log_startup(input_dict, output_dict, exec_properties)
        given = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
        written = artifact_utils.get_single_instance(output_dict[TF_EXAMPLES_KEY])
        written.split_names = given.split_names
        written.span, written.version = given.span, given.version
        with self._make_beam_pipeline() as pipeline:
            for split in artifact_utils.decode_split_names(given.split_names):
                tfxio = tfxio_utils.get_split_tfxio(
                    examples=[given], split=split, telemetry_descriptors=["TFExamples"]
                )
                _ = (
                    pipeline
                    | f"Read[{split}]" >> tfxio.BeamSource()
                    | f"Serialize[{split}]" >> beam.FlatMap(serialize).with_output_types(bytes)
                    | f"Write[{split}]"
                    >> beam.io.WriteToTFRecord(
                        os.path.join(artifact_utils.get_split_uri([written], split), _FILES),
                        file_name_suffix=".gz",
                    )
                )
        examples_utils.set_payload_format(written, _FORMAT)
        examples_utils.set_file_format(written, _FILE_FORMAT)
