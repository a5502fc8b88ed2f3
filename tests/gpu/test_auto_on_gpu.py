"""`micro_batch_size: auto` by the GPU allocator's own peak counter.

In separate processes: TensorFlow decides once per process how it takes a GPU's memory.
"""

from __future__ import annotations

import functools
import textwrap

import pytest

from trainer_module.devices.memory_budget import parse_memory_budget

pytestmark = pytest.mark.gpu

MODEL = """
    import keras
    import numpy as np

    ROWS = 512
    BATCH = (np.ones((ROWS, 64, 64, 3), "float32"), np.zeros((ROWS, 1), "float32"))

    def build():
        layers = [keras.layers.Conv2D(32, 3, padding="same", activation="relu") for _ in range(4)]
        pooled = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((64, 64, 3)), *layers, *pooled])
        return model, keras.optimizers.Adam(1e-3), "mean_squared_error"
"""
SEARCH = """
    import json, sys
    from gpu_model import BATCH, ROWS, build
    from trainer_module import find_micro_batch_size

    found = find_micro_batch_size(
        build, tuple(array[:1] for array in BATCH), global_batch_size=ROWS,
        memory_budget=sys.argv[1],
    )
    print(json.dumps(found._asdict()))
"""
# What the allocator counts for a training of three steps.
OUTSIDE = """
    import sys
    import tensorflow as tf
    from trainer_module.devices.strategies import create_strategy, grow_gpu_memory
    grow_gpu_memory()
    from gpu_model import BATCH, build
    from trainer_module import TrainStep

    strategy = create_strategy("auto")
    with strategy.scope():
        model, optimizer, loss = build()
    step = TrainStep(model, optimizer, loss, micro_batch_size=int(sys.argv[1]), strategy=strategy)
    for _ in range(3):
        step(BATCH)
    print(tf.config.experimental.get_memory_info("GPU:0")["peak"])
"""


@pytest.fixture(scope="module")
def run(in_own_process, tmp_path_factory):
    """Returns what a program printed last."""
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "gpu_model.py").write_text(textwrap.dedent(MODEL))
    return functools.partial(in_own_process, folder)


def test_what_is_found_fits_and_the_next_size_does_not(run):
    budget = "400MiB"
    found = run(SEARCH, budget)
    limit = parse_memory_budget(budget).of(0)
    assert found["bytes"] <= limit
    assert found["next_rows"] == 2 * found["rows"]
    # A trained model's batches come from the host one by one; the probe has them prefetched.
    assert run(OUTSIDE, found["rows"]) <= limit < run(OUTSIDE, found["next_rows"])


def test_by_default_the_budget_is_a_share_of_what_is_free(run):
    found = run(SEARCH, "80%")
    assert found["rows"] == 512
    assert found["next_rows"] is None
    assert found["budget"] > 2**30


def test_too_small_a_budget_is_an_error(run):
    with pytest.raises(AssertionError, match="a step of micro-batches of 1 row needs"):
        run(SEARCH, "1MiB")
