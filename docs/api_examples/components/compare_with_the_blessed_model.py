"""Records of blessed models, for platforms without TFX's resolver."""

from tfx import v1 as tfx

from components import BlessedModelRecord, LatestBlessedModel

artifacts = tfx.types.standard_artifacts
model = tfx.dsl.Channel(type=artifacts.Model)  # of a Trainer
blessing = tfx.dsl.Channel(type=artifacts.ModelBlessing)  # of an EvaluatorOfRecords
records = "s3://bucket/pipelines/my-pipeline/blessed_models"
baseline = LatestBlessedModel(records)
record = BlessedModelRecord(model, blessing, folder=records)
