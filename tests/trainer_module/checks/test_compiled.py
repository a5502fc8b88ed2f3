"""Arguments of `compile` that have no effect: one line that names each, none where none is lost."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from trainer_module import TrainStep, accumulate_gradients, per_example_gradients, weighted_loss

X, Y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
SGD, AdamW = keras.optimizers.SGD, keras.optimizers.AdamW
MSE, Huber = keras.losses.MeanSquaredError, keras.losses.Huber


class Scaled(keras.losses.Loss):
    """Without its factor in `get_config`."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, y_true, y_pred):
        return keras.ops.mean(self.factor * keras.ops.square(y_true - y_pred), -1)


def make():
    x = keras.Input((3,))
    return keras.Model(x, keras.layers.Dense(1)(x))


def two(kind=dict):
    x = keras.Input((3,))
    found = {name: keras.layers.Dense(1, name=name)(x) for name in "ab"}
    return keras.Model(x, found if kind is dict else list(found.values()))


def step(model, optimizer, loss):
    TrainStep(model, optimizer, loss, micro_batch_size=2)


BOTH = {"a": "mse", "b": "mae"}
SCHEDULE = keras.optimizers.schedules.CosineDecay


def test_there_is_no_line_where_nothing_is_lost(warnings):
    for model, compiled, optimizer, loss in [
        (make, {"optimizer": "sgd", "loss": "mse"}, SGD(), "mse"),
        (make, {"optimizer": AdamW(1e-3), "loss": "mse"}, AdamW(1e-3, name="mine"), MSE()),
        (make, {"optimizer": "sgd", "loss": MSE()}, SGD(), weighted_loss("mean_squared_error")),
        (make, {"optimizer": "sgd", "loss": Scaled(2.0)}, SGD(), Scaled(2.0)),
        (make, {"optimizer": SGD(SCHEDULE(0.1, 9)), "loss": "mse"}, SGD(SCHEDULE(0.1, 9)), "mse"),
        (make, {"optimizer": "sgd", "jit_compile": False, "metrics": []}, SGD(), "mse"),
        (two, {"optimizer": "sgd", "loss": "mse"}, SGD(), {"a": "mse", "b": MSE()}),
        (
            two,
            {"optimizer": "sgd", "loss": BOTH, "loss_weights": {"a": 2, "b": 0.5}},
            SGD(),
            weighted_loss(BOTH, loss_weights={"a": 2.0, "b": 0.5}),
        ),
        (lambda: two(list), {"optimizer": "sgd", "loss": BOTH}, SGD(), ["mse", "mae"]),
    ]:
        model = model()
        model.compile(**compiled)
        step(model, optimizer, loss)
        assert warnings == []


@pytest.mark.parametrize(
    ("model", "compiled", "loss", "texts"),
    [
        (make, {"optimizer": SGD(0.5), "loss": "mse"}, "mse", ["optimizer=SGD(learning_rate=0.5"]),
        (make, {"loss": Scaled(2.0)}, Scaled(1.0), ["loss=scaled"]),
        (make, {"loss": "mse", "metrics": ["mae"]}, "mse", ["metrics=['mae']", "Evaluation("]),
        (
            make,
            {"weighted_metrics": [keras.metrics.AUC(name="area")]},
            "mse",
            ["weighted_metrics=[area]", "Evaluation("],
        ),
        (make, {"run_eagerly": True}, "mse", ["run_eagerly=True", "run_functions_eagerly"]),
        (
            two,
            {"loss": BOTH, "loss_weights": {"a": 2.0, "b": 1.0}},
            BOTH,
            ["loss_weights={'a': 2.0, 'b': 1.0}", "weighted_loss(loss, loss_weights=...)"],
        ),
        (two, {"loss": BOTH}, {"a": "mae", "b": "mse"}, ["loss={'a': 'mse', 'b': 'mae'}"]),
    ],
)
def test_one_line_names_what_is_lost(warnings, model, compiled, loss, texts):
    model = model()
    model.compile(**{"optimizer": AdamW(1e-3), **compiled})
    for _ in range(2):
        step(model, AdamW(1e-3), loss)
    (line,) = warnings
    assert "was compiled with" in line
    for text in texts:
        assert text in line
    is_of_optimizer = "optimizer" in texts[0]
    assert ("trainer.optimizer" in line) == is_of_optimizer


def test_functions_without_an_optimizer_compare_the_loss(warnings):
    for lost in (False, True):
        for use in (accumulate_gradients, per_example_gradients):
            model = make()
            model.compile("adam", "huber" if lost else "mse", metrics=["mae"])
            size = {"micro_batch_size" if use is accumulate_gradients else "chunk_size": 2}
            use(model, "mse", X, Y, **size)
    assert len(warnings) == 2
    assert all("compiled with loss='huber': not used" in line for line in warnings)
