"""What the nodes do: copy the latest blessed model, write down a new one, evaluate without one."""

from __future__ import annotations

from typing import Any

from absl import logging
from tfx.components.evaluator import executor as evaluator
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.types.artifact import Artifact
from tfx.utils import io_utils

from components.blessed_models.records import has_model, latest_model, write_record

FOLDER_KEY = "folder"
MODEL_URI_KEY = "model_uri"
MODEL_KEY = "model"
BLESSING_KEY = "blessing"
_BLESSED = "BLESSED"


class LatestExecutor(BaseExecutor):
    """Copies the latest blessed model into its output, which stays empty where there is none."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See TFX's BaseExecutor."""
        given = exec_properties.get(MODEL_URI_KEY)
        if given and not has_model(given):
            raise ValueError(
                f"cluster.kubeflow.baseline_model={given}: there is no model "
                f"({given}/Format-Serving/saved_model.pb); name the folder of a Trainer's `model`."
            )
        found = given or latest_model(exec_properties[FOLDER_KEY])
        output = artifact_utils.get_single_uri(output_dict[MODEL_KEY])
        if found is None:
            logging.info("There is no blessed model yet in %s", exec_properties[FOLDER_KEY])
            fileio.makedirs(output)
            return
        logging.info("The latest blessed model is %s", found)
        io_utils.copy_dir(found, output)


class RecordExecutor(BaseExecutor):
    """Writes a record of a model that was blessed."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See TFX's BaseExecutor."""
        blessing = artifact_utils.get_single_uri(input_dict[BLESSING_KEY])
        model = artifact_utils.get_single_uri(input_dict[MODEL_KEY])
        if not fileio.exists(f"{blessing}/{_BLESSED}"):
            logging.info("%s was not blessed: no record of it", model)
            return
        path = write_record(exec_properties[FOLDER_KEY], model, blessing=blessing)
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
        if baseline and not has_model(artifact_utils.get_single_uri(baseline)):
            input_dict = {k: v for k, v in input_dict.items() if k != keys.BASELINE_MODEL_KEY}
        super().Do(input_dict, output_dict, exec_properties)
