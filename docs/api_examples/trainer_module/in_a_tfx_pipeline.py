"""The functions of a Trainer and a Tuner node, and their [settings](../../settings/training.md)."""

from trainer_module import TrainerConfig

config = TrainerConfig.parse({"global_batch_size": 256, "micro_batch_size": 64, "epochs": 3})
# tfx.components.Trainer(run_fn="trainer_module.run_fn", custom_config=custom_config, ...)
custom_config = {"trainer": config.model_dump(mode="json")}
