"""The InputGradients node, and the artifact type of its output."""

from __future__ import annotations

from tfx.dsl.components.base.base_beam_component import BaseBeamComponent
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.types import standard_artifacts
from tfx.types.artifact import Artifact
from tfx.types.channel import BaseChannel, Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter

from components.input_gradients import MOST_ROWS, MOST_STEPS, executor


class Attributions(Artifact):
    """Attributions of the predictions for sampled rows to columns.

    Files: `rows/rows.parquet`, one row for each sampled row, and `summary.json`
    (components.input_gradients.summary.AttributionSummary).
    """

    TYPE_NAME = "components.Attributions"


class InputGradientsSpec(ComponentSpec):
    """Inputs, outputs and parameters of InputGradients."""

    PARAMETERS = {  # noqa: RUF012  (the attributes that ComponentSpec declares)
        executor.ROWS_KEY: ExecutionParameter(type=int),
        executor.STEPS_KEY: ExecutionParameter(type=int),
        executor.SPLIT_KEY: ExecutionParameter(type=str),
    }
    INPUTS = {  # noqa: RUF012
        executor.EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples),
        executor.MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
    }
    OUTPUTS = {executor.ATTRIBUTIONS_KEY: ChannelParameter(type=Attributions)}  # noqa: RUF012


class InputGradients(BaseBeamComponent):
    """Attributes the predictions for sampled rows to columns, by integrated gradients.

    Outputs:
        attributions: Attributions, `rows/rows.parquet` and `summary.json`.
    """

    SPEC_CLASS = InputGradientsSpec
    EXECUTOR_SPEC = BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        examples: BaseChannel,
        model: BaseChannel,
        *,
        rows: int = 2000,
        steps: int = 50,
        split: str = "eval",
    ):
        """Describe the node; nothing is read here.

        Args:
            examples: Channel of Examples, raw: the rows to explain.
            model: Channel of Model: an export with the signatures `input_gradients` and
                `transform_features`.
            rows: Number of rows to sample, at most 20,000: those with the smallest hashes, so the
                same rows in each run. All rows if the split has fewer.
            steps: Points of the path integral between a row of zeros, after Transform, and the row.
            split: Split of the examples.

        Raises:
            ValueError: A parameter is out of range.
        """
        for name, value, most in (("rows", rows, MOST_ROWS), ("steps", steps, MOST_STEPS)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ValueError(
                    f"InputGradients: {name}={value!r}: use a whole number from 1 to {most:,}."
                )
        spec = InputGradientsSpec(
            **{
                executor.EXAMPLES_KEY: examples,
                executor.MODEL_KEY: model,
                executor.ROWS_KEY: rows,
                executor.STEPS_KEY: steps,
                executor.SPLIT_KEY: split,
                executor.ATTRIBUTIONS_KEY: Channel(type=Attributions),
            }
        )
        super().__init__(spec=spec)
