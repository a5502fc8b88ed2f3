"""The graph: one function that builds it for every target.

ExampleGen -> StatisticsGen -> SchemaGen | ImportSchemaGen -> ExampleValidator
  -> Transform -> NormalizationValidator -> [Tuner] -> Trainer -> Resolver -> Evaluator -> Pusher
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.config.config import PipelineConfig
from pipeline.data import data_sources
from pipeline.graph.fingerprint import fingerprint

if TYPE_CHECKING:
    from tfx import v1 as tfx
    from tfx.dsl.components.base.base_node import BaseNode


def create_pipeline(config: PipelineConfig) -> tfx.dsl.Pipeline:
    """The pipeline that a configuration describes.

    Args:
        config: the checked configuration, paths absolute (`load_config`).

    Returns:
        A pipeline for any TFX runner; building it reads no data and writes nothing.
    """
    from tfx import v1 as tfx
    from tfx.orchestration import metadata

    return tfx.dsl.Pipeline(
        pipeline_name=config.name,
        pipeline_root=config.pipeline_root,
        components=_nodes(config),
        enable_cache=config.metadata.cache,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(
            str(config.metadata_path)
        ),
        beam_pipeline_args=config.beam.pipeline_args(),
    )


def _nodes(config: PipelineConfig) -> list[BaseNode]:
    from tfx import v1 as tfx

    from components import (
        NormalizationLimits,
        NormalizationValidator,
        create_trainer,
        create_tuner,
    )

    examples = data_sources.example_gen(config.data, config.features)
    statistics = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    if config.data_schema.path:
        schema = tfx.components.ImportSchemaGen(schema_file=config.data_schema.path)
    else:
        # Without inferred shapes every column may be missing in a row, at serving as in training.
        schema = tfx.components.SchemaGen(
            statistics=statistics.outputs["statistics"], infer_feature_shape=False
        )
    validator = tfx.components.ExampleValidator(
        statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"]
    )
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn="transform.preprocessing_fn",
        custom_config=_transform_config(config),
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
    code = _trainer_code(config)
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
    )
    trainers = [tuner, trainer] if tuner else [trainer]
    for node in trainers:
        # Nothing may be trained on features that the validator refused.
        node.add_upstream_node(normalization)
    baseline = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
    ).with_id("LatestBlessedModel")
    evaluator = tfx.components.Evaluator(
        examples=examples.outputs["examples"],
        model=trainer.outputs["model"],
        baseline_model=baseline.outputs["model"],
        schema=schema.outputs["schema"],
        eval_config=config.evaluation.eval_config(
            label=config.label.column, kind=config.label.kind, weight=config.features.weight
        ),
    )
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=config.push_folder)
        ),
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
    ]


def _transform_config(config: PipelineConfig) -> dict[str, Any]:
    derive = config.features.derive
    return {
        "features": config.features.model_dump(mode="json", exclude_none=True),
        "code": fingerprint(["transform"], [derive] if derive else []),
    }


def _trainer_code(config: PipelineConfig) -> str:
    return fingerprint(["trainer_module"], config.training_functions)
