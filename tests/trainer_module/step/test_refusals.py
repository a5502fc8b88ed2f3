"""What TrainStep refuses, each with its message: the name, the value and what to do instead."""

from __future__ import annotations

import re

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import StagedModel, TrainStep, accumulate_gradients, split_model

SGD = keras.optimizers.SGD


def batch_norm(**options):
    return keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(name="bn", **options),
            keras.layers.Dense(1),
        ]
    )


def test_batch_normalisation_needs_a_definition():
    model = batch_norm()
    for options, message in [
        ({}, "bn' is a BatchNormalization in training mode.*ghost.*frozen.*GroupNormalization"),
        ({"batch_norm": "sync"}, "batch_norm='sync': .*'ghost' or 'frozen'"),
        ({"batch_norm": "ghost", "clip_per_example": 1.0}, "'ghost' with clip_per_example=1.0"),
        ({"batch_norm": "ghost", "model": full_batch.mlp()}, "'ghost': .* no BatchNormalization"),
        ({"batch_norm": "ghost", "model": batch_norm(renorm=True)}, "bn' has renorm=True"),
        ({"batch_norm": "ghost", "model": batch_norm(synchronized=True)}, "synchronized=True"),
        (
            {"batch_norm": "ghost", "model": StagedModel(split_model(batch_norm(), ["bn"]))},
            "Staged",
        ),
    ]:
        given = {"model": model, "micro_batch_size": 2, **options}
        with pytest.raises(ValueError, match=message):
            TrainStep(given.pop("model"), SGD(), "mse", **given)
    model.get_layer("bn").trainable = False
    step = TrainStep(model, SGD(), "mse", micro_batch_size=2)
    assert bool(step(full_batch.batch("mlp")).applied)


def test_invalid_arguments_are_rejected_by_the_constructor():
    for options, message in [
        ({"expected_rows": 0}, "expected_rows=0: use a whole number of at least 1"),
        ({"micro_batch_size": 0}, "micro_batch_size=0: use a whole number of at least 1"),
        ({"micro_batch_size": True}, "micro_batch_size=True: use a whole number"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0: use a value greater than 0"),
        ({"clip_norm": float("nan")}, "clip_norm=nan: use a value greater than 0"),
        ({"clip_per_example": 0}, "clip_per_example=0: use a value greater than 0"),
        ({"clip_per_example": float("inf")}, "clip_per_example=inf: use a finite number"),
        ({"gradient_noise_scale": 0}, "gradient_noise_scale=0: use a whole number of at least 1"),
        ({"ema_momentum": 1.0}, "ema_momentum=1.0: use a value less than 1"),
        ({"non_finite": "ignore"}, "non_finite='ignore': .*'raise' or 'skip'"),
        ({"added_losses": "max"}, "added_losses='max': .*'mean' or 'sum'"),
        ({"loss_fn": "crossentropy"}, "loss='crossentropy' is not a Keras loss; did you mean"),
        ({"loss_fn": keras.losses.MeanSquaredError(reduction="sum")}, "reduction='sum'"),
        ({"optimizer": SGD(global_clipnorm=1.0)}, "global_clipnorm=1.0.*clip_norm of TrainStep"),
        ({"optimizer": SGD(clipvalue=1.0)}, "clipvalue=1.0: leave it out; it would change the dir"),
        ({"optimizer": SGD(use_ema=True)}, "use_ema=True.*ema_momentum"),
        (
            {"optimizer": SGD(gradient_accumulation_steps=4)},
            "gradient_accumulation_steps=4.*micro_batch_size",
        ),
        ({"optimizer": SGD(loss_scale_factor=8.0)}, "loss_scale_factor=8.0.*scales losses itself"),
        ({"optimizer": "sgd"}, "optimizer='sgd' is not a Keras 3 optimizer: give one"),
        ({"optimizer": SGD}, "optimizer=<class .*SGD'> is not .*: give one"),
        (
            {"optimizer": keras.optimizers.LossScaleOptimizer(SGD())},
            "LossScaleOptimizer decides per replica",
        ),
    ]:
        given = {"optimizer": SGD(), "loss_fn": "mse", "micro_batch_size": 2, **options}
        with pytest.raises(ValueError, match=message):
            TrainStep(full_batch.mlp(), **given)


def legacy():
    import tf_keras

    return tf_keras.Sequential([tf_keras.layers.Input((5,)), tf_keras.layers.Dense(1)])


def frozen():
    model = full_batch.mlp()
    model.trainable = False
    return model


def float8():
    model = full_batch.mlp()
    model.layers[0].quantize("float8")
    return model


def test_unsupported_models_are_rejected():
    for build, message in [
        (lambda: keras.Sequential([keras.layers.Dense(1)]), r"is not built: .*Input.*one row"),
        (legacy, r"model=tf_keras.*Sequential is not a Keras 3 model: .*import keras"),
        (frozen, "has no trainable variables: nothing to train"),
        (float8, r"is overwritten with its gradient.*float8.*mixed_bfloat16"),
    ]:
        with pytest.raises(ValueError, match=message):
            TrainStep(build(), SGD(), "mse", micro_batch_size=2)


@pytest.mark.parametrize("name", ["dict", "nested"])
def test_the_fix_for_a_model_that_is_not_built_works(strategies, name):
    """Reference: what the message says is done, and the model trains."""

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.table, self.head = keras.layers.Embedding(7, 2), keras.layers.Dense(1)

        def call(self, inputs, training=False):
            if not isinstance(inputs, dict):
                return self.head(keras.ops.concatenate(tf.nest.flatten(inputs), -1))
            return self.head(keras.ops.concatenate([self.table(inputs["id"]), inputs["x"]], -1))

    x = np.ones((4, 3), "float32")
    features = {
        "dict": {"id": np.arange(4), "x": x},
        "nested": [x, (x, {"x": x})],
    }[name]
    strategy = strategies["mirrored2"]
    given = {"loss_fn": "mse", "micro_batch_size": 2, "strategy": strategy}
    with strategy.scope():
        model, optimizer = Subclassed(), SGD()
        if name == "dict":
            model.build({"id": (None,), "x": (None, 3)})  # Keras cannot, and says nothing
    with pytest.raises(ValueError, match="is not built") as caught:
        TrainStep(model, optimizer, **given)
    code, _ = re.findall("`(.+?)`", str(caught.value))
    with strategy.scope():
        eval(code, {"model": model, "features": features, "tf": tf})
    assert bool(TrainStep(model, optimizer, **given)((features, x[:, :1])).applied)


def test_layers_that_are_built_late_are_named():
    """Also by functions without a step."""

    class Late(keras.Model):
        def __init__(self):
            super().__init__()
            self.head, self.late = keras.layers.Dense(1), keras.layers.Dense(3)

        def build(self, shape):
            self.head.build((None, 3))

        def call(self, inputs):
            return self.head(self.late(inputs))

    model, x = Late(), np.ones((4, 3), "float32")
    with pytest.raises(ValueError, match="is not built"):
        accumulate_gradients(model, "mse", x, x[:, :1], micro_batch_size=2)
    model.build((None, 3))
    with pytest.raises(ValueError, match=r"has 4 trainable variables.*\(2\).*one row first"):
        TrainStep(model, SGD(), "mse", micro_batch_size=2)((x, x[:, :1]))


def test_a_model_or_optimizer_of_another_strategy_is_refused(strategies):
    strategy = strategies["mirrored2"]
    given = {"loss_fn": "mse", "micro_batch_size": 2, "strategy": strategy}
    with pytest.raises(ValueError, match=r"model .* not created under this strategy.*scope"):
        TrainStep(full_batch.mlp(), SGD(), **given)
    with strategy.scope():
        model = full_batch.mlp()
    with pytest.raises(ValueError, match=r"optimizer .* not created under this strategy.*scope"):
        TrainStep(model, SGD(), **given)


def test_a_loss_of_no_variable_is_refused():
    features, labels, _ = map(tf.constant, full_batch.batch("mlp"))

    def loss(labels, outputs, sample_weight):
        return tf.reduce_sum(labels), tf.cast(tf.size(labels), tf.float32)

    with pytest.raises(ValueError, match=r"depends on no trainable variable: .*outputs"):
        accumulate_gradients(full_batch.mlp(), loss, features, labels, micro_batch_size=2)


def test_layers_frozen_after_construction_are_rejected():
    """Pitfall: the traced function would still train them."""
    model = full_batch.mlp()
    step = TrainStep(model, SGD(0.1), "mse", micro_batch_size=4)
    features, labels, _ = full_batch.batch("mlp")
    step((features, labels))
    trained = model.get_weights()
    model.layers[0].trainable = False
    message = r"has 2 trainable variables, and had others \(4\).*frozen.*new TrainStep"
    with pytest.raises(ValueError, match=message):
        step((features, labels))
    batches = tf.data.Dataset.from_tensors((features, labels))
    with pytest.raises(ValueError, match=message):
        step.run(iter(batches), 1)
    assert full_batch.error(model.get_weights(), trained) == 0
    # A new one leaves them alone, with the optimizer that knows all variables.
    TrainStep(model, step.optimizer, "mse", micro_batch_size=4)((features, labels))
    assert full_batch.error(model.get_weights()[:2], trained[:2]) == 0
    assert full_batch.error(model.get_weights()[2:], trained[2:]) > 1e-3


def test_a_batch_without_labels_is_refused_by_a_loss_of_labels():
    step = TrainStep(full_batch.mlp(), SGD(), "mse", micro_batch_size=2)
    with pytest.raises(ValueError, match=r"no labels.*give \(features, labels\), or a loss"):
        step((np.zeros((4, 5), "float32"), None))


def test_labels_that_would_broadcast_or_are_no_numbers_are_refused():
    step = TrainStep(full_batch.mlp(), SGD(), "mse", micro_batch_size=2)
    with pytest.raises(ValueError, match=r"labels are strings: give numbers.*StringLookup"):
        step((np.zeros((4, 5), "float32"), np.array([["a"], ["b"], ["b"], ["a"]])))
    with pytest.raises(ValueError, match=r"labels of shape .* do not fit outputs"):
        step((np.zeros((4, 5), "float32"), np.zeros((4, 3), "float32")))


@pytest.mark.skipif(not hasattr(keras.optimizers, "MultiOptimizer"), reason="Keras before 3.13")
def test_options_of_the_optimizers_inside_a_multi_optimizer_are_refused():
    for lazy in [True, False]:
        for option in [{"clipnorm": 1.0}, {"use_ema": True}, {"gradient_accumulation_steps": 2}]:
            (name,) = option
            inner = SGD(0.1, name="inner", **option)
            chosen = keras.optimizers.OptimizerMap(keras.optimizers.Adam(), {".*kernel": inner})
            optimizer = keras.optimizers.MultiOptimizer(chosen.__call__ if lazy else chosen)
            with pytest.raises(ValueError, match=f"optimizer 'inner' has {name}=.*: leave it out"):
                TrainStep(full_batch.mlp(), optimizer, "mse", micro_batch_size=2)
