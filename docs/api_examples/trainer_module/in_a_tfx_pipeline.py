"""`run_fn` and `tuner_fn` are the functions of a Trainer and a Tuner node. A `TrainerConfig` has their settings:
[training](../../settings/training.md)."""

from trainer_module import TrainerConfig

config = TrainerConfig.parse({"global_batch_size": 256, "micro_batch_size": 64, "epochs": 3})
# tfx.components.Trainer(run_fn="trainer_module.run_fn", custom_config=custom_config, ...)
custom_config = {"trainer": config.model_dump(mode="json")}
