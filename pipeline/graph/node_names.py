"""The names of the built-in nodes, in the order in which they run."""

from __future__ import annotations

import enum


class NodeName(str, enum.Enum):
    """The id of a built-in node, as TFX, the YAML, the summary and the platforms show it.

    `pipeline.graph.nodes.NODES` has the node's `NodeSpec`.
    """

    EXAMPLE_GEN = "ArrowExampleGen"
    STATISTICS_GEN = "StatisticsGen"
    SCHEMA_GEN = "SchemaGen"
    IMPORT_SCHEMA_GEN = "ImportSchemaGen"
    EXAMPLE_VALIDATOR = "ExampleValidator"
    TRANSFORM = "Transform"
    NORMALIZATION_VALIDATOR = "NormalizationValidator"
    TUNER = "Tuner"
    TRAINER = "Trainer"
    LATEST_BLESSED_MODEL = "LatestBlessedModel"
    EVALUATOR = "Evaluator"
    INPUT_GRADIENTS = "InputGradients"
    PUSHER = "Pusher"
    BLESSED_MODEL_RECORD = "BlessedModelRecord"

    __str__ = str.__str__
