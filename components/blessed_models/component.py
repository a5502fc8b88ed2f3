"""The nodes: LatestBlessedModel in a resolver's place, BlessedModelRecord, and an Evaluator."""

from __future__ import annotations

from tfx.components import Evaluator
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec, ExecutorClassSpec
from tfx.types import standard_artifacts
from tfx.types.channel import BaseChannel, Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter

from components.blessed_models import executor


class LatestBlessedModelSpec(ComponentSpec):
    """Inputs, outputs and parameters of LatestBlessedModel."""

    PARAMETERS = {  # noqa: RUF012  (the attributes that ComponentSpec declares)
        executor.FOLDER_KEY: ExecutionParameter(type=str),
        executor.MODEL_URI_KEY: ExecutionParameter(type=str, optional=True),
    }
    INPUTS = {}  # noqa: RUF012
    OUTPUTS = {executor.MODEL_KEY: ChannelParameter(type=standard_artifacts.Model)}  # noqa: RUF012


class LatestBlessedModel(BaseComponent):
    """Gives the latest model that BlessedModelRecord wrote down: what a resolver does elsewhere.

    Outputs:
        model: a copy of the model; an empty folder where none was blessed yet.
    """

    SPEC_CLASS = LatestBlessedModelSpec
    EXECUTOR_SPEC = ExecutorClassSpec(executor.LatestExecutor)

    def __init__(self, folder: str, *, model_uri: str | None = None):
        """Describe the node; nothing is read here.

        Args:
            folder: of the records.
            model_uri: a model to take in place of the latest blessed one.
        """
        super().__init__(
            spec=LatestBlessedModelSpec(
                **{
                    executor.FOLDER_KEY: folder,
                    executor.MODEL_URI_KEY: model_uri,
                    executor.MODEL_KEY: Channel(type=standard_artifacts.Model),
                }
            )
        )


class BlessedModelRecordSpec(ComponentSpec):
    """Inputs, outputs and parameters of BlessedModelRecord."""

    PARAMETERS = {executor.FOLDER_KEY: ExecutionParameter(type=str)}  # noqa: RUF012
    INPUTS = {  # noqa: RUF012
        executor.MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        executor.BLESSING_KEY: ChannelParameter(type=standard_artifacts.ModelBlessing),
    }
    OUTPUTS = {}  # noqa: RUF012


class BlessedModelRecord(BaseComponent):
    """Writes down a model that the Evaluator blessed, for LatestBlessedModel of later runs."""

    SPEC_CLASS = BlessedModelRecordSpec
    EXECUTOR_SPEC = ExecutorClassSpec(executor.RecordExecutor)

    def __init__(self, model: BaseChannel, blessing: BaseChannel, *, folder: str):
        """Describe the node; nothing is written here.

        Args:
            model: Channel of Model: `trainer.outputs["model"]`.
            blessing: Channel of ModelBlessing: `evaluator.outputs["blessing"]`.
            folder: of the records.
        """
        super().__init__(
            spec=BlessedModelRecordSpec(
                **{
                    executor.MODEL_KEY: model,
                    executor.BLESSING_KEY: blessing,
                    executor.FOLDER_KEY: folder,
                }
            )
        )


class EvaluatorOfRecords(Evaluator):
    """TFX's Evaluator, for a `baseline_model` that may be empty: what LatestBlessedModel gives."""

    EXECUTOR_SPEC = BeamExecutorSpec(executor.EvaluatorExecutor)
