"""Every engine has the outputs of the in-memory runner for a wide specification.

Quantiles come from a sketch that is exact for as few rows as these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.engines.engine import BeamConfig

from .conftest import assert_same, run_transform

pytestmark = pytest.mark.slow(45)


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


def test_one_changed_value_is_detected(in_memory):
    """The comparison fails if one value of one row changes by ten times the tolerance."""
    outputs = in_memory.splits["eval"]
    name = next(n for n, values in outputs.items() if np.issubdtype(values.dtype, np.floating))
    changed = outputs[name].copy()
    changed.flat[7] += 1e-5 * max(1.0, abs(changed.flat[7]))
    splits = {**in_memory.splits, "eval": {**outputs, name: changed}}
    with pytest.raises(AssertionError, match=name):
        assert_same(replace(in_memory, splits=splits), in_memory)
