"""The TFExamples node."""

from __future__ import annotations

from tfx.dsl.components.base.base_beam_component import BaseBeamComponent
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.types import standard_artifacts
from tfx.types.channel import BaseChannel, Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec

from components.tf_examples import executor


class TFExamplesSpec(ComponentSpec):
    """Input and output of TFExamples."""

    PARAMETERS = {}  # noqa: RUF012  (the attributes that ComponentSpec declares)
    INPUTS = {  # noqa: RUF012
        executor.EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples)
    }
    OUTPUTS = {  # noqa: RUF012
        executor.TF_EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples)
    }


class TFExamples(BaseBeamComponent):
    """Writes examples as gzipped TFRecords of tf.Examples.

    Outputs:
        tf_examples: Examples with the same splits, rows, span and version.
    """

    SPEC_CLASS = TFExamplesSpec
    EXECUTOR_SPEC = BeamExecutorSpec(executor.Executor)

    def __init__(self, examples: BaseChannel):
        """Describe the node.

        Args:
            examples: Channel of Examples, raw or transformed, in Parquet.
        """
        super().__init__(
            spec=TFExamplesSpec(
                **{
                    executor.EXAMPLES_KEY: examples,
                    executor.TF_EXAMPLES_KEY: Channel(type=standard_artifacts.Examples),
                }
            )
        )
