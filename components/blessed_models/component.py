"""The latest blessed model where the platform has no resolver: records beside the artifacts.

A record is a small file in a folder. It is named by the time in microseconds, so that the latest is
the last in the order of names, and says where the model is and which execution blessed it.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from absl import logging
from tfx.components import Evaluator
from tfx.components.evaluator import executor as evaluator
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec, ExecutorClassSpec
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_artifacts
from tfx.types import standard_component_specs as keys
from tfx.types.artifact import Artifact
from tfx.types.channel import BaseChannel, Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter
from tfx.utils import io_utils

from shared_core.atomic_files import atomic_write_text

_FOLDER, _MODEL, _BLESSING = "folder", "model", "blessing"
_SUFFIX = ".json"


def write_record(folder: str, model_uri: str, **facts: str) -> str:
    """Write a record at once, so that no reader sees part of it; return its path."""
    digest = hashlib.sha256(model_uri.encode()).hexdigest()[:8]
    path = f"{folder}/{time.time_ns() // 1000:016d}-{digest}{_SUFFIX}"
    atomic_write_text(path, json.dumps({"version": 1, "model": model_uri, **facts}, indent=1))
    return path


def _latest_model(folder: str) -> str | None:
    """Return the folder of the latest blessed model that still exists; None without one."""
    if not fileio.exists(folder):
        return None
    for name in sorted(fileio.listdir(folder), reverse=True):
        if not str(name).endswith(_SUFFIX):
            continue
        try:
            with fileio.open(f"{folder}/{name}") as stream:
                uri = json.loads(stream.read())["model"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{folder}/{name}: not a record of a blessed model ({error}); delete it to compare "
                "with the one before it."
            ) from None
        if _has_model(uri):
            return uri
    return None


def _has_model(uri: str) -> bool:
    """Return whether the artifact's folder holds a model, as TFX's Trainer writes it."""
    return fileio.exists(f"{uri}/Format-Serving/saved_model.pb")


class LatestExecutor(BaseExecutor):
    """Copies the latest blessed model into its output, which stays empty where there is none."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See TFX's BaseExecutor."""
        uri = _latest_model(exec_properties[_FOLDER])
        output = artifact_utils.get_single_uri(output_dict[_MODEL])
        if uri is None:
            logging.info("There is no blessed model yet in %s", exec_properties[_FOLDER])
            fileio.makedirs(output)
            return
        logging.info("The latest blessed model is %s", uri)
        io_utils.copy_dir(uri, output)


class RecordExecutor(BaseExecutor):
    """Writes a record of a model that was blessed."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See TFX's BaseExecutor."""
        blessing = artifact_utils.get_single_uri(input_dict[_BLESSING])
        model = artifact_utils.get_single_uri(input_dict[_MODEL])
        if not fileio.exists(f"{blessing}/BLESSED"):
            logging.info("%s was not blessed: no record of it", model)
            return
        path = write_record(exec_properties[_FOLDER], model, blessing=blessing)
        logging.info("Recorded the blessed model %s in %s", model, path)


class EvaluatorExecutor(evaluator.Executor):
    """TFX's, which takes a baseline without a model for none."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See TFX's Evaluator."""
        baseline = input_dict.get(keys.BASELINE_MODEL_KEY)
        if baseline and not _has_model(artifact_utils.get_single_uri(baseline)):
            input_dict = {k: v for k, v in input_dict.items() if k != keys.BASELINE_MODEL_KEY}
        super().Do(input_dict, output_dict, exec_properties)


class _LatestBlessedModelSpec(ComponentSpec):
    """Inputs, outputs and parameters of LatestBlessedModel."""

    PARAMETERS = {  # noqa: RUF012  (the attributes that ComponentSpec declares)
        _FOLDER: ExecutionParameter(type=str),
    }
    INPUTS = {}  # noqa: RUF012
    OUTPUTS = {_MODEL: ChannelParameter(type=standard_artifacts.Model)}  # noqa: RUF012


class LatestBlessedModel(BaseComponent):
    """Gives the latest model that BlessedModelRecord wrote down: what a resolver does elsewhere.

    Outputs:
        model: a copy of the model; an empty folder where none was blessed yet.
    """

    SPEC_CLASS = _LatestBlessedModelSpec
    EXECUTOR_SPEC = ExecutorClassSpec(LatestExecutor)

    def __init__(self, folder: str):
        """Describe the node; nothing is read here.

        Args:
            folder: of the records.
        """
        super().__init__(
            spec=_LatestBlessedModelSpec(
                **{
                    _FOLDER: folder,
                    _MODEL: Channel(type=standard_artifacts.Model),
                }
            )
        )


class _BlessedModelRecordSpec(ComponentSpec):
    """Inputs, outputs and parameters of BlessedModelRecord."""

    PARAMETERS = {_FOLDER: ExecutionParameter(type=str)}  # noqa: RUF012
    INPUTS = {  # noqa: RUF012
        _MODEL: ChannelParameter(type=standard_artifacts.Model),
        _BLESSING: ChannelParameter(type=standard_artifacts.ModelBlessing),
    }
    OUTPUTS = {}  # noqa: RUF012


class BlessedModelRecord(BaseComponent):
    """Writes down a model that the Evaluator blessed, for LatestBlessedModel of later runs."""

    SPEC_CLASS = _BlessedModelRecordSpec
    EXECUTOR_SPEC = ExecutorClassSpec(RecordExecutor)

    def __init__(self, model: BaseChannel, blessing: BaseChannel, *, folder: str):
        """Describe the node; nothing is written here.

        Args:
            model: Channel of Model: `trainer.outputs["model"]`.
            blessing: Channel of ModelBlessing: `evaluator.outputs["blessing"]`.
            folder: of the records.
        """
        super().__init__(
            spec=_BlessedModelRecordSpec(
                **{
                    _MODEL: model,
                    _BLESSING: blessing,
                    _FOLDER: folder,
                }
            )
        )


class EvaluatorOfRecords(Evaluator):
    """TFX's Evaluator, for a `baseline_model` that may be empty: what LatestBlessedModel gives."""

    EXECUTOR_SPEC = BeamExecutorSpec(EvaluatorExecutor)
