"""The exactness matrix on GPUs: the same cells and tolerances as tests/trainer_module has on CPUs.

Reference: full_batch.train, one full batch, plain GradientTape, float64, on the first GPU.
"""

from __future__ import annotations

import full_batch
import pytest
from exactness import SELECTION, check

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("cell", SELECTION, ids=str)
def test_the_selection(strategies, cell):
    check(cell, strategies)


def test_the_step_is_on_the_gpu(strategies):
    import keras

    from trainer_module import TrainStep

    with strategies["one_device"].scope():
        model = full_batch.mlp()
        optimizer = keras.optimizers.Adam(0.1)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=4, strategy=strategies["one_device"])
    report = step(full_batch.batch("mlp"))
    assert "GPU:0" in report.loss.device
    assert {variable.value.device[-5:] for variable in model.variables} == {"GPU:0"}
