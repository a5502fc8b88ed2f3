"""The graph of TFX components of a [configuration](../../settings/index.md), for any runner."""

from pipeline import create_pipeline, load_config

config = load_config("examples/taxi/pipeline.yaml")
print(config.name, config.training.global_batch_size)  # chicago-taxi 256
pipeline = create_pipeline(config)
# tfx.orchestration.LocalDagRunner().run(pipeline)
