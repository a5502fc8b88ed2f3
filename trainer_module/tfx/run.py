"""TFX's door to the trainer: `tfx.components.Trainer(run_fn="trainer_module.run_fn", ...)`."""

from __future__ import annotations

import os
from typing import Any

from trainer_module.baselines.baselines import write_baselines
from trainer_module.config import TrainerConfig, trainer_settings
from trainer_module.data.input_pipeline import summarise
from trainer_module.devices.process import prepare_process
from trainer_module.devices.strategies import create_strategy
from trainer_module.loop.actions import FitResult
from trainer_module.model.data_context import unsized_ids
from trainer_module.model.plan import resolve
from trainer_module.tfx.data import open_data, split_files
from trainer_module.tfx.export import export_model
from trainer_module.tfx.label_names import label_names, write_label
from trainer_module.training import check_rows, keras_set_up, train
from trainer_module.tuning.hyperparameters import with_hyperparameters


def run_fn(fn_args: Any) -> FitResult:
    """Trains on Transform's output and exports a SavedModel.

    Everything comes from `fn_args.custom_config["trainer"]`, a `TrainerConfig` as JSON. TFX's own
    `train_args.num_steps` counts only if it is above 0 and the configuration gives neither steps
    nor epochs (then 10 epochs); `eval_args` is ignored: every eval row is evaluated after each
    epoch.

    A Tuner's best hyperparameters, where the node has them, take the place of the settings that
    they name (`optimizer.learning_rate`).

    With `fn_args.custom_config["baselines"]`, a split's name, what a constant and a linear model
    reach on its rows is written to `baselines.json` in the model_run folder.

    Args:
        fn_args: TFX's FnArgs: train_files, eval_files, transform_output, model_run_dir,
            serving_model_dir, custom_config, hyperparameters.

    Raises:
        ValueError: A setting that is wrong or does not fit the data; raised before training starts.
        NonFiniteError: The loss or a gradient became NaN or infinite (see `non_finite`).
    """
    config = TrainerConfig.parse(trainer_settings(fn_args.custom_config))
    if getattr(fn_args, "hyperparameters", None):
        config = with_hyperparameters(config, fn_args.hyperparameters)
    prepare_process(config)
    plan = resolve(config)
    strategy = create_strategy(config.strategy, logical_devices=config.logical_devices)
    data = open_data(fn_args, config)
    summary = summarise(data.train, id_features=unsized_ids(data))
    check_rows(config, summary)
    with keras_set_up(config):
        trained = train(
            plan,
            data,
            summary,
            strategy,
            run_dir=_run_dir(fn_args),
            train_steps=getattr(fn_args, "train_steps", None),
        )
        label = data.layout.label if data.layout is not None else None
        names = None
        if label is not None:
            names = label_names(
                label,
                numbers=int(summary.label_max) + 1,
                transform_output=data.transform_output,
                loss=plan.loss,
                raw_schema=getattr(fn_args, "schema_path", None),
            )
        export_model(
            trained.model,
            data.transform_output,
            fn_args.serving_model_dir,
            inputs=trained.inputs,
            label_scale=trained.label_scale,
            names=names,
        )
    if names is not None:
        write_label(fn_args.serving_model_dir, names)
    judged = fn_args.custom_config.get("baselines")
    if judged:
        files = split_files(fn_args, judged)
        write_baselines(
            _run_dir(fn_args), data._replace(eval_files=files), summary, config, trained.inputs
        )
    return trained.result


def _run_dir(fn_args: Any) -> str:
    return getattr(fn_args, "model_run_dir", None) or os.path.join(
        os.path.dirname(fn_args.serving_model_dir.rstrip("/")), "model_run"
    )
