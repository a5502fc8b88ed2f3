"""TFX's entry point of the tuner, `tuner_fn`.

tfx.components.Tuner(tuner_fn="trainer_module.tuner_fn", ...)
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from trainer_module.checks.batch import translate_tf_errors
from trainer_module.config import DEFAULT_METRICS, TrainerConfig, trainer_settings
from trainer_module.data.input_pipeline import summarise
from trainer_module.devices.cluster import cluster_of_environment
from trainer_module.devices.process import prepare_process
from trainer_module.devices.strategies import create_strategy
from trainer_module.loop.callback import Callback
from trainer_module.model.data_context import model_context, unsized_ids
from trainer_module.model.plan import resolve, resolve_all
from trainer_module.tfx.data import open_data
from trainer_module.training.prepare import Folders, check_rows
from trainer_module.training.train import keras_set_up, train
from trainer_module.tuning.tuner_config import TunerConfig, check_objective

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

    from trainer_module.tuning.tuner import SettingsTuner


class _TunerFnResult(NamedTuple):
    """The result type that TFX's Tuner expects: `tuner.search(**fit_kwargs)` runs the search."""

    tuner: SettingsTuner
    fit_kwargs: dict[str, object]


@translate_tf_errors()
def tuner_fn(fn_args: FnArgs) -> _TunerFnResult:
    """Return a search over the settings of a training on Transform's output.

    All settings come from `fn_args.custom_config`: `["trainer"]` is the Trainer's `TrainerConfig`,
    and `["tuner"]` the `TunerConfig`, both as JSON. A Trainer that receives the Tuner's best
    hyperparameters trains with them.

    Args:
        fn_args: TFX's FnArgs: train_files, eval_files, transform_graph_path, working_dir,
            custom_config.

    Raises:
        ValueError: A setting is wrong or does not fit the data. Raised before the first trial.
    """
    custom = fn_args.custom_config or {}
    if "tuner" not in custom:
        raise ValueError(
            'trainer_module.tuner_fn needs custom_config["tuner"]: give the Tuner what to search, '
            'such as {"search": {"optimizer.learning_rate": {"min": 1e-4, "max": 0.1}}}.'
        )
    config = TrainerConfig.parse(trainer_settings(custom))
    tuning = TunerConfig.parse(custom["tuner"])
    tuning.check(config)
    combinations = list(tuning.combinations(config))
    # Trials that measure memory have the strictest requirements for the process.
    prepare_process(next((c for c in combinations if c.micro_batch_size == "auto"), config))
    resolve_all(combinations)
    strategy = create_strategy(_strategy_name(config), logical_devices=config.logical_devices)
    data = open_data(fn_args, config)
    if not data.eval_files:
        raise ValueError(
            "the Tuner compares trials on the eval split, and the examples have none: split the "
            "data."
        )
    summary = summarise(data.train, id_features=unsized_ids(data))
    check_rows(max(combinations, key=lambda c: c.batch_sizes.largest), summary)
    names = config.metrics or DEFAULT_METRICS[model_context(config, data, summary).label_kind]
    check_objective(tuning.objective, names, field="tuner.objective")

    directory = getattr(fn_args, "working_dir", None) or tempfile.mkdtemp(prefix="tuner-")

    def train_trial(config: TrainerConfig, progress: Callback) -> Mapping[str, float]:
        gc.collect()  # the previous model and its functions are a cycle that holds device memory
        with keras_set_up(config):
            steps = getattr(fn_args, "train_steps", None)
            trained = train(
                resolve(config),
                data,
                summary,
                strategy,
                # Trials that differ in their learning rate get the same size, however much memory
                # this process still holds from earlier trials (on GPUs, their peak).
                folders=Folders(record=os.path.join(directory, "micro_batch_size")),
                train_steps=steps,
                progress=progress,
            )
        return trained.result.metrics

    # KerasTuner is installed with TFX; the rest of the package does not need it.
    from trainer_module.tuning.tuner import SettingsTuner

    return _TunerFnResult(SettingsTuner(config, tuning, train_trial, directory=directory), {})


def _strategy_name(config: TrainerConfig) -> str:
    """Return the strategy of the trials, which run on one machine; the result is the same."""
    cluster = cluster_of_environment()
    if cluster is not None and len(cluster.workers) > 1:
        raise ValueError(
            f"TF_CONFIG has {len(cluster.workers)} workers, and a search runs on one machine: "
            "unset it for the Tuner; the Trainer takes what it found on all workers."
        )
    return "auto" if config.strategy == "multi_worker" else config.strategy
