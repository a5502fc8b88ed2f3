"""The built-in nodes of the graph, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pipeline.common.fingerprint import fingerprint
from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.data import data_sources
from pipeline.graph.node_names import NodeName

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode
    from tfx.types.channel import BaseChannel


@dataclass(frozen=True)
class GraphContext:
    """A graph while it is built.

    Attributes:
        config: The checked configuration.
        blessed_models: Folder of the records of blessed models, for a target without a resolver;
            None: use TFX's resolver.
        nodes: Id -> node, for the nodes that are built.
    """

    config: PipelineConfig
    blessed_models: str | None = None
    nodes: dict[str, BaseNode] = field(default_factory=dict)

    def output(self, name: NodeName, key: str) -> BaseChannel:
        """Return the channel of a node's output."""
        return self.nodes[name].outputs[key]

    def schema(self) -> BaseChannel:
        """Return the channel of the raw data's schema, inferred or imported."""
        imported = NodeName.IMPORT_SCHEMA_GEN in self.nodes
        name = NodeName.IMPORT_SCHEMA_GEN if imported else NodeName.SCHEMA_GEN
        return self.output(name, "schema")


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """A built-in node.

    Attributes:
        build: Creates the TFX node, after those before it in the table.
        after: Nodes that it runs after in addition to those whose outputs it reads.
        section: Section of the YAML that configures it, or None.
        is_used: Whether the graph has it.
        main_outputs: Outputs whose folders the summary shows; empty: the first output.
        rows: The rows that progress shows: all, those of the evaluation split, or None.
        reads_outside: Whether its result depends on more than its inputs and settings, so that a
            platform must not cache it.
    """

    build: Callable[[GraphContext], BaseNode]
    after: tuple[NodeName, ...] = ()
    section: str | None = None
    is_used: Callable[[GraphContext], bool] = lambda context: True
    main_outputs: tuple[str, ...] = ()
    rows: Literal["all", "evaluated"] | None = None
    reads_outside: bool = False


def _statistics_gen(context: GraphContext):
    from tfx.components import StatisticsGen

    options = None
    if names := context.config.image_columns:
        import tensorflow_data_validation as tfdv
        from tensorflow_metadata.proto.v0 import schema_pb2

        # TFDV counts the sizes of such bytes, and not how often each image occurs.
        schema = schema_pb2.Schema()
        for name in names:
            schema.feature.add(name=name, type=schema_pb2.BYTES).image_domain.SetInParent()
        options = tfdv.StatsOptions(schema=schema)
    return StatisticsGen(
        examples=context.output(NodeName.EXAMPLE_GEN, "examples"), stats_options=options
    )


def _schema_gen(context: GraphContext):
    from tfx.components import SchemaGen

    # Without inferred shapes every column may be missing in a row, at serving as in training.
    return SchemaGen(
        statistics=context.output(NodeName.STATISTICS_GEN, "statistics"), infer_feature_shape=False
    )


def _import_schema_gen(context: GraphContext):
    from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen

    assert context.config.data_schema.path is not None
    return ImportSchemaGen(schema_file=context.config.data_schema.path)


def _example_validator(context: GraphContext):
    from tfx.components import ExampleValidator

    return ExampleValidator(
        statistics=context.output(NodeName.STATISTICS_GEN, "statistics"), schema=context.schema()
    )


def _transform_config(config: PipelineConfig) -> JsonObject:
    """Return Transform's `custom_config`: everything except the rows that affects its output."""
    derive = config.features.derive
    return {
        "features": config.features.model_dump(mode="json", exclude_none=True),
        "code": fingerprint(
            ["components.transform", "transform", "shared_core"], [derive] if derive else []
        ),
    }


def _transform(context: GraphContext):
    from components import ParquetTransform

    return ParquetTransform(
        examples=context.output(NodeName.EXAMPLE_GEN, "examples"),
        schema=context.schema(),
        preprocessing_fn="transform.preprocessing_fn",
        custom_config=_transform_config(context.config),
        # StatisticsGen computes statistics of the raw columns, NormalizationValidator those of each
        # packed column. Transform's would take time and describe whole vectors only.
        disable_statistics=True,
    )


def _normalization_validator(context: GraphContext):
    from components import NormalizationLimits, NormalizationValidator

    settings = context.config.normalization
    return NormalizationValidator(
        examples=context.output(NodeName.TRANSFORM, "transformed_examples"),
        transform_graph=context.output(NodeName.TRANSFORM, "transform_graph"),
        statistics=context.output(NodeName.STATISTICS_GEN, "statistics"),
        limits=NormalizationLimits.of(settings),
        on_failure=settings.on_failure,
    )


def _training_data(context: GraphContext) -> JsonObject:
    """Return the inputs that Trainer and Tuner share."""
    return {
        "examples": context.output(NodeName.TRANSFORM, "transformed_examples"),
        "transform_graph": context.output(NodeName.TRANSFORM, "transform_graph"),
        "schema": context.schema(),
    }


def _trainer_code(config: PipelineConfig) -> str:
    """Return the fingerprint of the code that Trainer and Tuner run."""
    return fingerprint(["trainer_module", "shared_core"], config.training_functions)


def _tuner(context: GraphContext):
    from components import create_tuner

    config = context.config
    assert config.tuning is not None
    return create_tuner(
        **_training_data(context),
        trainer=config.training,
        config=config.tuning,
        code=_trainer_code(config),
    )


def _trainer(context: GraphContext):
    from components import create_trainer

    config = context.config
    images = list(config.image_columns)
    best = None
    if NodeName.TUNER in context.nodes:
        best = context.output(NodeName.TUNER, "best_hyperparameters")
    return create_trainer(
        **_training_data(context),
        config=config.training,
        hyperparameters=best,
        code=_trainer_code(config),
        baselines=config.data.evaluation_split if config.evaluation.baselines else None,
        input_gradients=config.explain is not None,
        reading={
            "version": 1,
            "source": config.data.source,
            "csv": config.data.csv.model_dump(mode="json") if config.data.source == "csv" else None,
            **({"images": images, "files": config.data.files} if images else {}),
        },
    )


def _latest_blessed_model(context: GraphContext):
    if context.blessed_models is not None:
        from components import LatestBlessedModel

        return LatestBlessedModel(context.blessed_models)
    from tfx.dsl.components.common.resolver import Resolver
    from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
    from tfx.types import standard_artifacts
    from tfx.types.channel import Channel

    return Resolver(
        strategy_class=latest_blessed_model_strategy.LatestBlessedModelStrategy,
        model=Channel(type=standard_artifacts.Model),
        model_blessing=Channel(type=standard_artifacts.ModelBlessing),
    )


def _evaluator(context: GraphContext):
    from tfx.components import Evaluator

    from components import EvaluatorOfRecords

    config = context.config
    node = Evaluator if context.blessed_models is None else EvaluatorOfRecords
    return node(
        examples=context.output(NodeName.EXAMPLE_GEN, "examples"),
        example_splits=[config.data.evaluation_split],
        model=context.output(NodeName.TRAINER, "model"),
        baseline_model=context.output(NodeName.LATEST_BLESSED_MODEL, "model"),
        schema=context.schema(),
        eval_config=config.evaluation.eval_config(
            label=config.label.column, kind=config.label.kind, weight=config.features.weight
        ),
        module_path="components.column_evaluation",
    )


def _input_gradients(context: GraphContext):
    from components import InputGradients

    config = context.config
    assert config.explain is not None
    return InputGradients(
        examples=context.output(NodeName.EXAMPLE_GEN, "examples"),
        model=context.output(NodeName.TRAINER, "model"),
        rows=config.explain.rows,
        steps=config.explain.steps,
        split=config.data.evaluation_split,
    )


def _pusher(context: GraphContext):
    from tfx.components import Pusher
    from tfx.proto.pusher_pb2 import PushDestination  # pyright: ignore[reportAttributeAccessIssue]

    return Pusher(
        model=context.output(NodeName.TRAINER, "model"),
        model_blessing=context.output(NodeName.EVALUATOR, "blessing"),
        push_destination=PushDestination(
            filesystem=PushDestination.Filesystem(base_directory=context.config.push_folder)
        ),
    )


def _blessed_model_record(context: GraphContext):
    from components import BlessedModelRecord

    assert context.blessed_models is not None
    return BlessedModelRecord(
        context.output(NodeName.TRAINER, "model"),
        context.output(NodeName.EVALUATOR, "blessing"),
        folder=context.blessed_models,
    )


NODES: dict[str, NodeSpec] = {
    NodeName.EXAMPLE_GEN: NodeSpec(
        build=lambda at: data_sources.example_gen(at.config.data, at.config.features),
        section="data",
        rows="all",
        reads_outside=True,  # files of a path may change
    ),
    NodeName.STATISTICS_GEN: NodeSpec(
        build=_statistics_gen, main_outputs=("statistics",), rows="all"
    ),
    NodeName.SCHEMA_GEN: NodeSpec(
        build=_schema_gen,
        section="schema",
        is_used=lambda context: not context.config.data_schema.path,
        main_outputs=("schema",),
    ),
    NodeName.IMPORT_SCHEMA_GEN: NodeSpec(
        build=_import_schema_gen,
        section="schema",
        is_used=lambda context: bool(context.config.data_schema.path),
        main_outputs=("schema",),
    ),
    NodeName.EXAMPLE_VALIDATOR: NodeSpec(build=_example_validator, main_outputs=("anomalies",)),
    NodeName.TRANSFORM: NodeSpec(
        build=_transform, section="features", main_outputs=("transform_graph",), rows="all"
    ),
    NodeName.NORMALIZATION_VALIDATOR: NodeSpec(
        build=_normalization_validator, section="normalization", main_outputs=("report",)
    ),
    # Tuner and Trainer: nothing is trained on features that NormalizationValidator refused.
    NodeName.TUNER: NodeSpec(
        build=_tuner,
        after=(NodeName.NORMALIZATION_VALIDATOR,),
        section="tuning",
        is_used=lambda context: context.config.tuning is not None,
        main_outputs=("best_hyperparameters",),
    ),
    NodeName.TRAINER: NodeSpec(
        build=_trainer,
        after=(NodeName.NORMALIZATION_VALIDATOR,),
        section="training",
        main_outputs=("model",),
    ),
    NodeName.LATEST_BLESSED_MODEL: NodeSpec(
        build=_latest_blessed_model, main_outputs=("model",), reads_outside=True
    ),
    NodeName.EVALUATOR: NodeSpec(
        build=_evaluator, section="evaluation", main_outputs=("evaluation",), rows="evaluated"
    ),
    NodeName.INPUT_GRADIENTS: NodeSpec(
        build=_input_gradients,
        after=(NodeName.EVALUATOR,),
        section="explain",
        is_used=lambda context: context.config.explain is not None,
        main_outputs=("attributions",),
    ),
    NodeName.PUSHER: NodeSpec(build=_pusher, section="serving"),
    NodeName.BLESSED_MODEL_RECORD: NodeSpec(
        build=_blessed_model_record,
        is_used=lambda context: context.blessed_models is not None,
        reads_outside=True,
    ),
}
"""Id -> the node, in the order in which they run."""
