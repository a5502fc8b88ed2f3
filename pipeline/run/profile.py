"""`profile`: where the time of the Trainer's steps goes, on the rows of the latest run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.common.object_stores import register_file_systems
from pipeline.config.config import PipelineConfig
from pipeline.features.features_explain import run_of_config
from pipeline.graph.node_names import NodeName
from pipeline.report.records import find_output
from trainer_module import StepProfile, profile_fn


def profile(config: PipelineConfig, *, steps: int) -> StepProfile:
    """Take the first steps of the configured training, on the rows of its latest run.

    Raises:
        ConfigError: The pipeline has not run as far as Transform, or the training cannot be
            profiled.
    """
    register_file_systems(config.model_dump_json(exclude={"cluster"}))
    arguments = _arguments(config)
    try:
        return profile_fn(arguments, steps=steps)
    except (ValueError, ArithmeticError) as error:  # the latter: a loss that is not finite
        raise ConfigError(str(error).replace("trainer.", "training.")) from None


def _arguments(config: PipelineConfig) -> Any:
    """Return TFX's FnArgs of the Trainer, for the outputs of the latest run."""
    records = run_of_config(config)
    graph = find_output(records, NodeName.TRANSFORM, "transform_graph")
    rows = find_output(records, NodeName.TRANSFORM, "transformed_examples")
    if graph is None or rows is None:
        raise ConfigError(
            "the latest run has no finished Transform, whose rows are profiled; run "
            "`python -m pipeline run` until it has"
        )
    for output in (graph, rows):
        if "://" not in output.uri and not Path(output.uri).is_dir():
            raise ConfigError(
                f"the output of the latest run's Transform is gone from {output.uri}; run it again "
                "with --set metadata.cache=false"
            )
    tuned = find_output(records, NodeName.TUNER, "best_hyperparameters")
    if tuned is not None and config.tuning is not None:
        file = Path(tuned.uri) / "best_hyperparameters.txt"
        best = json.loads(file.read_text(encoding="utf-8"))
    else:
        best = None
    return SimpleNamespace(
        train_files=[f"{rows.uri}/Split-train/*"],
        eval_files=[f"{rows.uri}/Split-eval/*"],
        transform_output=graph.uri,
        custom_config={"trainer": config.training.model_dump(mode="json")},
        hyperparameters=best,
    )
