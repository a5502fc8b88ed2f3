"""Nodes for a Trainer or a Tuner to stand behind; nothing of them runs."""

from __future__ import annotations

import pytest
from tfx import v1 as tfx


@pytest.fixture
def nodes():
    """What the READMEs' programs expect: tfx, example_gen, schema_gen and transform."""
    examples = tfx.components.CsvExampleGen(input_base="rows")
    statistics_gen = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    schema_gen = tfx.components.SchemaGen(statistics=statistics_gen.outputs["statistics"])
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema_gen.outputs["schema"],
        preprocessing_fn="transform.preprocessing_fn",
    )
    return {
        "example_gen": examples,
        "schema_gen": schema_gen,
        "transform": transform,
        "tfx": tfx,
    }


@pytest.fixture
def channels(nodes):
    """Their outputs, as create_trainer and create_tuner take them."""
    return {
        "examples": nodes["transform"].outputs["transformed_examples"],
        "transform_graph": nodes["transform"].outputs["transform_graph"],
        "schema": nodes["schema_gen"].outputs["schema"],
    }
