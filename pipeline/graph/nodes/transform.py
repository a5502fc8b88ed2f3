"""Transform: features from raw columns."""

from __future__ import annotations

from pipeline.common.fingerprint import fingerprint
from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import GraphContext, NodeSpec


def transform_config(config: PipelineConfig) -> JsonObject:
    """Return Transform's `custom_config`: everything except the rows that affects its output."""
    derive = config.features.derive
    return {
        "features": config.features.model_dump(mode="json", exclude_none=True),
        "code": fingerprint(
            ["components.transform", "transform", "shared_core"], [derive] if derive else []
        ),
    }


def _build(context: GraphContext):
    from components import ParquetTransform

    return ParquetTransform(
        examples=context.output(NodeName.EXAMPLE_GEN, "examples"),
        schema=context.schema(),
        preprocessing_fn="transform.preprocessing_fn",
        custom_config=transform_config(context.config),
        # StatisticsGen computes statistics of the raw columns, NormalizationValidator those of each
        # packed column. Transform's would take time and describe whole vectors only.
        disable_statistics=True,
    )


NODE = NodeSpec(
    name=NodeName.TRANSFORM,
    build=_build,
    after=(NodeName.EXAMPLE_GEN, NodeName.SCHEMA_GEN, NodeName.IMPORT_SCHEMA_GEN),
    section="features",
    main_outputs=("transform_graph",),
    rows="all",
)
