"""Arguments that users know from Keras: the error names what replaces them."""

from __future__ import annotations

import inspect

import full_batch
import keras
import numpy as np
import pytest

from trainer_module import (
    TrainingLoop,
    TrainStep,
    accumulate_gradients,
    weighted_loss,
)
from trainer_module.common.keras_arguments import REPLACEMENTS
from trainer_module.loop.evaluation import Evaluation

X, Y = np.ones((4, 5), "float32"), np.ones((4, 1), "float32")
SGD = keras.optimizers.SGD


def step(**options):
    given = {"loss_fn": "mse", "micro_batch_size": 2, **options}
    return TrainStep(full_batch.mlp(), SGD(), **given)


def loop(**options):
    return TrainingLoop(step(), (X, Y), **{"batch_size": 2, "epochs": 1, **options})


def evaluation(**options):
    return Evaluation(full_batch.mlp(), "mse", (X, Y), **options)


def gradients(function):
    return lambda **given: function(full_batch.mlp(), "mse", X, Y, **given)


def test_the_error_names_the_replacement():
    for call, name, replacement in [
        (step, "loss", "loss_fn"),
        (step, "loss_weights", "weighted_loss(loss, loss_weights=...)"),
        (step, "metrics", "Evaluation(metrics=[...])"),
        (step, "clip_nrom", "did you mean 'clip_norm'?"),
        (loop, "validation_data", "evaluate=Evaluation(model, loss, data"),
        (loop, "jit_compile", "jit_compile of TrainStep"),
        (lambda **given: loop().fit(**given), "verbose", "progress=False"),
        (evaluation, "batch_size", "the same for all sizes"),
        (lambda **given: weighted_loss("mse", **given), "sample_weight", "third part of the data"),
        (gradients(accumulate_gradients), "batch_size", "micro_batch_size"),
    ]:
        for kind in (TypeError, ValueError):  # as Python raises it, and as the other errors here
            with pytest.raises(kind, match=f"has no argument '{name}': ") as caught:
                call(**{name: 1})
            assert replacement in str(caught.value)


def test_each_argument_of_keras_has_a_replacement():
    """Reference: the signatures of the installed Keras; an optimizer's options are below."""
    for function in ["compile", "fit", "evaluate"]:
        names = set(inspect.signature(getattr(keras.Model, function)).parameters) - {
            "self",
            "kwargs",
        }
        assert names <= set(REPLACEMENTS)
