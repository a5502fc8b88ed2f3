"""Every engine has the outputs of the in-memory runner for a wide specification.

Quantiles come from a sketch that is exact for as few rows as these.
"""

from __future__ import annotations

import pytest

from pipeline.engines.engine import BeamConfig

from .conftest import assert_same, run_transform


@pytest.mark.pipelines
@pytest.mark.parametrize(
    "beam",
    [BeamConfig(engine="multi_processing", workers=2), BeamConfig(engine="portable")],
    ids=lambda beam: beam.engine,
)
def test_engines_of_this_process(beam: BeamConfig, node, in_memory, tmp_path):
    assert_same(run_transform(node, beam, tmp_path), in_memory)


@pytest.mark.flink
def test_flink(flink, node, in_memory, tmp_path):
    beam = BeamConfig(engine="flink", options=flink.options())
    assert_same(run_transform(node, beam, tmp_path), in_memory)
