"""TFExamples: reads record batches by TFXIO, and writes their rows as tf.Examples."""

from __future__ import annotations

import os
from typing import Any

import apache_beam as beam
from tfx.components.util import examples_utils, tfxio_utils
from tfx.dsl.components.base.base_beam_component import BaseBeamComponent
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx.types.artifact import Artifact
from tfx.types.channel import BaseChannel, Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec

from components.arrow_example_gen.columns import serialize

_EXAMPLES, _TF_EXAMPLES = "examples", "tf_examples"
_FORMAT: Any = example_gen_pb2.FORMAT_TF_EXAMPLE  # pyright: ignore[reportAttributeAccessIssue]
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
        given = artifact_utils.get_single_instance(input_dict[_EXAMPLES])
        written = artifact_utils.get_single_instance(output_dict[_TF_EXAMPLES])
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
        examples_utils.set_file_format(written, "tfrecords_gzip")


class _TFExamplesSpec(ComponentSpec):
    """Input and output of TFExamples."""

    PARAMETERS = {}  # noqa: RUF012  (the attributes that ComponentSpec declares)
    INPUTS = {_EXAMPLES: ChannelParameter(type=standard_artifacts.Examples)}  # noqa: RUF012
    OUTPUTS = {_TF_EXAMPLES: ChannelParameter(type=standard_artifacts.Examples)}  # noqa: RUF012


class TFExamples(BaseBeamComponent):
    """Writes examples as gzipped TFRecords of tf.Examples.

    Outputs:
        tf_examples: Examples with the same splits, rows, span and version.
    """

    SPEC_CLASS = _TFExamplesSpec
    EXECUTOR_SPEC = BeamExecutorSpec(Executor)

    def __init__(self, examples: BaseChannel):
        """Describe the node.

        Args:
            examples: Channel of Examples, raw or transformed, in Parquet.
        """
        written = Channel(type=standard_artifacts.Examples)
        super().__init__(spec=_TFExamplesSpec(**{_EXAMPLES: examples, _TF_EXAMPLES: written}))
