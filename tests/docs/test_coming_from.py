"""The pages for who comes from Keras, TensorFlow or TFX: both programs run, and end as it says."""

from __future__ import annotations

import json
import re
import types
from typing import Any

import numpy as np
from command_line import ROOT


def programs(name: str) -> list[str]:
    """What both have in common, theirs and ours."""
    text = (ROOT / "docs" / f"coming-from-{name}.md").read_text(encoding="utf-8")
    *common, theirs, ours = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert ours.startswith("# tfx-largebatch")
    return ["".join(common), theirs, ours]


def run_both(name: str) -> list[dict[str, Any]]:
    common, *ends = programs(name)
    scopes: list[dict[str, Any]] = [{}, {}, {}]
    exec(common, scopes[0])
    for scope, end in zip(scopes[1:], ends, strict=True):
        exec(common + end, scope)
    return scopes


def test_fit_and_the_loop_end_with_the_same_weights():
    """Reference: keras.Model.fit with the full batch on one device. Tolerance: float32 rounding."""
    _, theirs, ours = run_both("fit")
    weights = [each["model"].get_weights() for each in (ours, theirs)]
    for found, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    for name in ("val_loss", "val_mean_absolute_error"):
        losses = [each["history"][name] for each in (ours, theirs)]
        np.testing.assert_allclose(*losses, rtol=1e-4)


def test_only_our_step_is_that_of_the_full_batch():
    """Reference: the mean gradient of all rows in float64. Tolerance: float32 rounding."""
    common, theirs, ours = run_both("tape")
    x = common["x"].numpy().astype("float64")
    kernel = common["model"].get_weights()[0].astype("float64")
    error = x @ kernel - x.sum(axis=1, keepdims=True)
    expected = kernel - 0.1 * 2 * x.T @ error / len(x)
    found = ours["model"].get_weights()[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(theirs["model"].get_weights()[0] - expected).max() > 1e-3


def test_the_nodes_are_built():
    from tfx import v1 as tfx

    artifacts = tfx.types.standard_artifacts
    kinds = {
        "transformed_examples": artifacts.Examples,
        "transform_graph": artifacts.TransformGraph,
        "schema": artifacts.Schema,
    }
    node = types.SimpleNamespace(
        outputs={name: tfx.dsl.Channel(type=kind) for name, kind in kinds.items()}
    )
    for program in programs("tfx")[1:]:
        exec(program, scope := {"transform": node, "schema_gen": node})
        assert isinstance(scope["trainer"], tfx.components.Trainer)
    from trainer_module import TrainerConfig

    config = json.loads(scope["trainer"].exec_properties["custom_config"])["trainer"]
    assert TrainerConfig.parse(config).steps == 1000
