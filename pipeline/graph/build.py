"""The graph: one function that builds it for every target.

ExampleGen -> StatisticsGen -> SchemaGen | ImportSchemaGen -> ExampleValidator
  -> Transform -> NormalizationValidator -> [Tuner] -> Trainer -> Resolver -> Evaluator -> Pusher
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.common.fingerprint import fingerprint
from pipeline.config.config import PipelineConfig, is_remote
from pipeline.data import data_sources

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode
    from tfx.orchestration.pipeline import Pipeline


def create_pipeline(
    config: PipelineConfig,
    *,
    blessed_models: str | None = None,
    baseline_model: str | None = None,
) -> Pipeline:
    """The pipeline that a configuration describes.

    Args:
        config: the checked configuration, paths absolute (`load_config`).
        blessed_models: folder of records of blessed models, where the target has no resolver; None
            for TFX's resolver.
        baseline_model: with `blessed_models`, a model to compare with in place of the latest one.

    Returns:
        A pipeline for any TFX runner. Building it reads no data and writes nothing but, of a local
        run, the folder of its metadata.
    """
    from tfx.orchestration import metadata
    from tfx.orchestration.pipeline import Pipeline

    # It makes the folder, which of a remote place would be one called `gs:`, here.
    sqlite = None if is_remote(config.output.folder) else metadata.sqlite_metadata_connection_config
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=config.pipeline_root,
        components=_nodes(config, blessed_models, baseline_model),
        enable_cache=config.metadata.cache,
        metadata_connection_config=sqlite and sqlite(str(config.metadata_path)),
        beam_pipeline_args=config.beam.pipeline_args(),
    )


def _nodes(
    config: PipelineConfig, blessed_models: str | None, baseline_model: str | None
) -> list[BaseNode]:
    # Not tfx.v1, which brings Google Cloud's clients in: 3 seconds of every start.
    from tfx import components as tfx_nodes
    from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
    from tfx.dsl.components.common.resolver import Resolver
    from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
    from tfx.proto.pusher_pb2 import PushDestination
    from tfx.types import standard_artifacts
    from tfx.types.channel import Channel

    from components import (
        BlessedModelRecord,
        EvaluatorOfRecords,
        LatestBlessedModel,
        NormalizationLimits,
        NormalizationValidator,
        create_trainer,
        create_tuner,
    )

    examples = data_sources.example_gen(config.data, config.features)
    statistics = tfx_nodes.StatisticsGen(examples=examples.outputs["examples"])
    if config.data_schema.path:
        schema = ImportSchemaGen(schema_file=config.data_schema.path)
    else:
        # Without inferred shapes every column may be missing in a row, at serving as in training.
        schema = tfx_nodes.SchemaGen(
            statistics=statistics.outputs["statistics"], infer_feature_shape=False
        )
    validator = tfx_nodes.ExampleValidator(
        statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"]
    )
    transform = tfx_nodes.Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn="transform.preprocessing_fn",
        custom_config=transform_config(config),
        # StatisticsGen has the raw columns' statistics, NormalizationValidator the packed ones',
        # per column: Transform's own take time and say nothing of a vector's parts.
        disable_statistics=True,
    )
    normalization = NormalizationValidator(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        statistics=statistics.outputs["statistics"],
        limits=NormalizationLimits.of(config.normalization),
        on_failure=config.normalization.on_failure,
    )
    training_data = {
        "examples": transform.outputs["transformed_examples"],
        "transform_graph": transform.outputs["transform_graph"],
        "schema": schema.outputs["schema"],
    }
    code = trainer_code(config)
    tuner = None
    if config.tuning is not None:
        tuner = create_tuner(
            **training_data, trainer=config.training, config=config.tuning, code=code
        )
    trainer = create_trainer(
        **training_data,
        config=config.training,
        hyperparameters=tuner.outputs["best_hyperparameters"] if tuner else None,
        code=code,
        baselines=config.data.judged_split if config.evaluation.baselines else None,
    )
    trainers = [tuner, trainer] if tuner else [trainer]
    for node in trainers:
        # Nothing may be trained on features that the validator refused.
        node.add_upstream_node(normalization)
    if blessed_models is None:
        baseline = Resolver(
            strategy_class=latest_blessed_model_strategy.LatestBlessedModelStrategy,
            model=Channel(type=standard_artifacts.Model),
            model_blessing=Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("LatestBlessedModel")
    else:
        baseline = LatestBlessedModel(blessed_models, model_uri=baseline_model)
    evaluator_class = tfx_nodes.Evaluator if blessed_models is None else EvaluatorOfRecords
    evaluator = evaluator_class(
        examples=examples.outputs["examples"],
        example_splits=[config.data.judged_split],
        model=trainer.outputs["model"],
        baseline_model=baseline.outputs["model"],
        schema=schema.outputs["schema"],
        eval_config=config.evaluation.eval_config(
            label=config.label.column, kind=config.label.kind, weight=config.features.weight
        ),
    ).with_id("Evaluator")
    pusher = tfx_nodes.Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=PushDestination(
            filesystem=PushDestination.Filesystem(base_directory=config.push_folder)
        ),
    )
    records = []
    if blessed_models is not None:
        records.append(
            BlessedModelRecord(
                trainer.outputs["model"], evaluator.outputs["blessing"], folder=blessed_models
            )
        )
    return [
        examples,
        statistics,
        schema,
        validator,
        transform,
        normalization,
        *trainers,
        baseline,
        evaluator,
        pusher,
        *records,
    ]


def transform_config(config: PipelineConfig) -> dict[str, Any]:
    """What decides Transform's output beside the rows: its `custom_config`, and so its cache."""
    derive = config.features.derive
    return {
        "features": config.features.model_dump(mode="json", exclude_none=True),
        "code": fingerprint(["transform"], [derive] if derive else []),
    }


def trainer_code(config: PipelineConfig) -> str:
    """The fingerprint of the code that Trainer and Tuner run."""
    return fingerprint(["trainer_module"], config.training_functions)
