"""The pages for who comes from Keras, TensorFlow or TFX: both programs run, and end as it says."""

from __future__ import annotations

import json
import re
import types

import numpy as np
from command_line import ROOT


def programs(name: str) -> list[str]:
    text = (ROOT / "docs" / f"coming-from-{name}.md").read_text(encoding="utf-8")
    theirs, ours = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert theirs.startswith("# ")
    assert ours.startswith("# tfx-largebatch")
    return [theirs, ours]


def run(program: str) -> dict[str, object]:
    exec(program, scope := {"__name__": "__main__"})
    return scope


def test_fit_and_the_loop_end_with_the_same_weights():
    """Reference: keras.Model.fit with the full batch on one device. Tolerance: float32 rounding."""
    theirs, ours = map(run, programs("fit"))
    for expected, found in zip(
        theirs["model"].get_weights(), ours["model"].get_weights(), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert set(ours["history"]) >= {"loss", "val_loss", "val_mean_absolute_error"}
    np.testing.assert_allclose(
        ours["history"]["val_loss"], theirs["history"]["val_loss"], rtol=1e-4
    )


def test_only_the_right_step_is_that_of_the_full_batch():
    """Reference: the mean gradient of all rows in float64."""
    theirs, ours = map(run, programs("tape"))
    x = ours["x"].numpy().astype("float64")
    y = x.sum(axis=1, keepdims=True)
    run_again = {}
    exec(programs("tape")[1].partition("@tf.function")[0], run_again)
    kernel = run_again["model"].get_weights()[0].astype("float64")
    expected = kernel - 0.1 * 2 * x.T @ (x @ kernel - y) / len(x)
    np.testing.assert_allclose(ours["model"].get_weights()[0], expected, rtol=1e-5, atol=1e-6)
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
    for program in programs("tfx"):
        exec(program, scope := {"transform": node, "schema_gen": node})
        assert isinstance(scope["trainer"], tfx.components.Trainer)
    from trainer_module import TrainerConfig

    config = json.loads(scope["trainer"].exec_properties["custom_config"])["trainer"]
    assert TrainerConfig.parse(config).steps == 1000
