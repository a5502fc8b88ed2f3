"""TFX's Trainer and Tuner with checked [settings](../../settings/training.md)."""

from tfx import v1 as tfx

from components import create_trainer, create_tuner

artifacts = tfx.types.standard_artifacts
data = {
    "examples": tfx.dsl.Channel(type=artifacts.Examples),  # of a Transform
    "transform_graph": tfx.dsl.Channel(type=artifacts.TransformGraph),
    "schema": tfx.dsl.Channel(type=artifacts.Schema),
}
training = {"global_batch_size": 256, "epochs": 3, "label": "tips"}
search = {"optimizer.learning_rate": {"min": 1e-4, "max": 0.1, "sampling": "log"}}
tuner = create_tuner(**data, trainer=training, config={"search": search, "trials": 20})
best = tuner.outputs["best_hyperparameters"]
trainer = create_trainer(**data, config=training, hyperparameters=best)
