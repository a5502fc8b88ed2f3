"""The InputGradients node."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tfx.dsl.components.base.base_beam_component import BaseBeamComponent
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.types import standard_artifacts
from tfx.types.channel import BaseChannel, Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter

from components.input_gradients import executor
from components.input_gradients.artifacts import Attributions
from components.input_gradients.options import check_options


class InputGradientsSpec(ComponentSpec):
    """Inputs, outputs and parameters of InputGradients."""

    PARAMETERS = {  # noqa: RUF012  (the attributes that ComponentSpec declares)
        executor.ROWS_KEY: ExecutionParameter(type=int),
        executor.STEPS_KEY: ExecutionParameter(type=int),
        executor.SPLIT_KEY: ExecutionParameter(type=str),
        executor.SLICES_KEY: ExecutionParameter(type=str),
        executor.TRANSFORMED_KEY: ExecutionParameter(type=int),
        executor.BATCH_ROWS_KEY: ExecutionParameter(type=int),
    }
    INPUTS = {  # noqa: RUF012
        executor.EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples),
        executor.MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        executor.BASELINE_KEY: ChannelParameter(type=standard_artifacts.Examples, optional=True),
    }
    OUTPUTS = {executor.ATTRIBUTIONS_KEY: ChannelParameter(type=Attributions)}  # noqa: RUF012


class InputGradients(BaseBeamComponent):
    """Attributes the predictions for sampled rows to columns, by integrated gradients.

    Outputs:
        attributions: Attributions, `rows/*.parquet` and `summary.json`.
    """

    SPEC_CLASS = InputGradientsSpec
    EXECUTOR_SPEC = BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        examples: BaseChannel,
        model: BaseChannel,
        *,
        baseline: BaseChannel | None = None,
        rows: int = 2000,
        slices: Sequence[str] = (),
        steps: int = 50,
        split: str = "eval",
        transformed: bool = False,
        batch_rows: int = 256,
    ):
        """Describe the node; nothing is read here.

        Args:
            examples: Channel of Examples, raw or transformed: the rows to explain.
            model: Channel of Model: an export with the signature `input_gradients`, and for raw
                examples `transform_features`.
            baseline: Channel of Examples of the same kind, at most 100 rows: attributions are
                means over these baselines. None: a row whose transformed features are 0, which is
                the mean of a column under z_score, and id 0.
            rows: Number of rows to sample, at most 20,000: those with the smallest hashes, so the
                same rows in each run. All rows if the split has fewer.
            slices: Columns of the examples. The means are also computed for each of their values.
            steps: Points of the path integral between baseline and row.
            split: Split of the examples.
            transformed: Whether the examples are transformed, from
                `transform.outputs["transformed_examples"]`.
            batch_rows: Rows of one forward and backward pass; they bound the memory.

        Raises:
            ValueError: A parameter is out of range, or a slice is named twice.
        """
        try:
            check_options(rows=rows, slices=slices, steps=steps, batch_rows=batch_rows)
        except ValueError as error:
            raise ValueError(f"InputGradients: {error}") from None
        spec = InputGradientsSpec(
            **{
                executor.EXAMPLES_KEY: examples,
                executor.MODEL_KEY: model,
                executor.BASELINE_KEY: baseline,
                executor.ROWS_KEY: rows,
                executor.STEPS_KEY: steps,
                executor.SPLIT_KEY: split,
                executor.SLICES_KEY: json.dumps(list(slices)),
                executor.TRANSFORMED_KEY: int(transformed),
                executor.BATCH_ROWS_KEY: batch_rows,
                executor.ATTRIBUTIONS_KEY: Channel(type=Attributions),
            }
        )
        super().__init__(spec=spec)
