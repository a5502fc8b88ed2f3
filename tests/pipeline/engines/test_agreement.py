"""Every engine has the outputs of the in-memory runner: for the taxi specification or a wide one.

Reference: the in-memory runner's output, compared by `conftest.assert_same`. Quantiles come from a
sketch that is exact for as few rows as these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.engines.engine import BeamConfig

from .conftest import assert_same

pytestmark = pytest.mark.slow(45)


@pytest.mark.parametrize(
    ("beam", "specification"),
    [
        (BeamConfig(engine="multi_processing", workers=2), "taxi"),
        (BeamConfig(engine="portable"), "wide"),
    ],
)
def test_engines_of_this_process(
    beam: BeamConfig, specification: str, nodes, in_memory, transform, tmp_path
):
    found = transform(nodes[specification], beam, tmp_path)
    assert_same(found, in_memory[specification])


@pytest.mark.flink
def test_flink(flink, nodes, in_memory, transform, tmp_path):
    beam = BeamConfig(engine="flink", options=flink.options())
    assert_same(transform(nodes["wide"], beam, tmp_path), in_memory["wide"])


@pytest.mark.parametrize("kind", [np.floating, np.integer])
def test_one_changed_value_is_detected(kind, in_memory):
    """The comparison fails if one value of one row changes by ten times the tolerance or by 1."""
    expected = in_memory["wide"]
    outputs = expected.splits["eval"]
    name = next(n for n, values in outputs.items() if np.issubdtype(values.dtype, kind))
    changed = outputs[name].copy()
    changed.flat[7] += 1 if kind is np.integer else 1e-5 * max(1.0, abs(changed.flat[7]))
    splits = {**expected.splits, "eval": {**outputs, name: changed}}
    with pytest.raises(AssertionError, match=name):
        assert_same(replace(expected, splits=splits), expected)
