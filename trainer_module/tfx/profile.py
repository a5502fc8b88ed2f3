"""Profile the training that `run_fn` runs for the same arguments."""

from __future__ import annotations

from typing import Any

from trainer_module.checks.batch import translate_tf_errors
from trainer_module.config import TrainerConfig, trainer_settings
from trainer_module.data.input_pipeline import summarise
from trainer_module.devices.cluster import cluster_of_environment
from trainer_module.devices.process import prepare_process
from trainer_module.devices.strategies import create_strategy
from trainer_module.model.data_context import unsized_ids
from trainer_module.model.plan import resolve
from trainer_module.profiling.profile_step import STEPS, StepProfile, profile_step
from trainer_module.step.train_step import TrainStep
from trainer_module.tfx.data import open_data
from trainer_module.training.prepare import check_rows, prepare
from trainer_module.training.train import build, keras_set_up
from trainer_module.tuning.hyperparameters import with_hyperparameters


@translate_tf_errors()
def profile_fn(fn_args: Any, *, steps: int = STEPS) -> StepProfile:
    """Take the first optimizer steps of a training with TensorFlow's profiler; write nothing.

    Args:
        fn_args: TFX's FnArgs, as for `run_fn`: train_files, eval_files, transform_output,
            custom_config, hyperparameters.
        steps: As in `profile_step`.

    Returns:
        Where the time went; see `profile_step`.

    Raises:
        ValueError: A setting is wrong or does not fit the data, or the training has several
            workers or a GPU.
    """
    config = TrainerConfig.parse(trainer_settings(fn_args.custom_config))
    if getattr(fn_args, "hyperparameters", None):
        config = with_hyperparameters(config, fn_args.hyperparameters)
    _check_one_process(config)
    prepare_process(config)
    plan = resolve(config)
    data = open_data(fn_args, config)
    summary = summarise(data.train, id_features=unsized_ids(data))
    check_rows(config, summary)
    strategy = create_strategy(config.strategy, logical_devices=config.logical_devices)
    train_steps = getattr(fn_args, "train_steps", None)
    with keras_set_up(config):
        prepared = prepare(plan, data, summary, strategy, train_steps=train_steps)
        built = build(prepared)
        assert isinstance(built.step, TrainStep)
        batches = built.examples.shuffled_batches(
            config.batch_sizes.at(0),
            shuffle_buffer_rows=prepared.shuffle_buffer_rows,
            seed=config.seed,
            rows=summary.rows,
        )
        return profile_step(built.step, batches, steps=steps, steps_per_loop=config.steps_per_loop)


def _check_one_process(config: TrainerConfig) -> None:
    advice = 'profile one process: set strategy to "one_device" or "mirrored" and leave workers out'
    if config.strategy in ("multi_worker", "parameter_server"):
        raise ValueError(f"strategy={config.strategy!r} has several processes: {advice}.")
    if (config.workers or 1) > 1:
        raise ValueError(f"workers={config.workers} are several processes: {advice}.")
    if config.strategy == "auto" and cluster_of_environment() is not None:
        raise ValueError(f"TF_CONFIG names several processes: unset it, or {advice}.")
