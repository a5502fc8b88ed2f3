"""Optimizer steps on every strategy against full-batch training on one device.

Reference: full_batch.train, float64. Tolerance: 1e-12 of each variable's largest value.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module.train_step import NonFiniteError, TrainStep


def cosine():
    return keras.optimizers.schedules.CosineDecay(0.05, 10)


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.05),
    "adamw": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.01),
    "lion": lambda: keras.optimizers.Lion(0.05),
    "adamw_schedule": lambda: keras.optimizers.AdamW(cosine()),
}


def make(strategy, kind="mlp", optimizer="adamw", *, micro_batch_size=3, **options):
    """Returns a TrainStep whose weights are the same for every strategy."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = full_batch.MODELS[kind]()
        built = OPTIMIZERS[optimizer]()
    return TrainStep(
        model,
        built,
        full_batch.loss_for(kind),
        micro_batch_size=micro_batch_size,
        strategy=strategy,
        **options,
    )


def reference(kind, optimizer, batches, **options):
    keras.utils.set_random_seed(1)
    return full_batch.train(
        full_batch.MODELS[kind](), OPTIMIZERS[optimizer](), kind, batches, **options
    )


def windows(kind, rows=(11, 11, 7, 1)):
    return [full_batch.batch(kind, n, seed) for seed, n in enumerate(rows)]


def without_zero_sums(batches):
    """The last window has one row, whose weight is made 1 so that it counts."""
    return [(f, l, np.where(w.sum() > 0, w, np.ones_like(w))) for f, l, w in batches]


# Every model on three replicas and on one device, the other strategies where they could differ.
COVERING = [(name, kind) for name in ("one_device", "mirrored3") for kind in full_batch.MODELS] + [
    ("none", "mlp"),
    ("none", "embeddings"),
    ("mirrored2", "regularised"),
    ("mirrored2", "two_in_two_out"),
]


@pytest.mark.parametrize(("name", "kind"), COVERING)
def test_weights_are_those_of_full_batch_training(float64, strategies, name, kind):
    """Windows of 11, 11, 7 and 1 rows: ragged over replicas, and fewer rows than replicas."""
    batches = without_zero_sums(windows(kind))
    step = make(strategies[name], kind, clip_norm=0.3, ema_momentum=0.9)
    for batch in batches:
        step(batch)
    weights, averages = reference(kind, "adamw", batches, clip_norm=0.3, ema_momentum=0.9)
    assert full_batch.error(step.model.get_weights(), weights) < 1e-12
    assert full_batch.error([a.numpy() for a in step.averages], averages) < 1e-12
    assert int(step.optimizer.iterations.numpy()) == int(step.step.numpy()) == len(batches)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_and_its_schedule_step_once_per_window(float64, strategies, optimizer):
    batches = without_zero_sums(windows("mlp"))
    step = make(strategies["mirrored2"], "mlp", optimizer, micro_batch_size=2)
    for batch in batches:
        step(batch)
    weights, _ = reference("mlp", optimizer, batches)
    assert full_batch.error(step.model.get_weights(), weights) < 1e-12


@pytest.mark.parametrize("kind", ["mlp", "embeddings"])
@pytest.mark.parametrize("name", ["one_device", "mirrored3"])
def test_compiled_by_xla(float64, strategies, name, kind):
    batches = without_zero_sums(windows(kind))
    step = make(strategies[name], kind, jit_compile=True)
    for batch in batches:
        step(batch)
    weights, _ = reference(kind, "adamw", batches)
    assert full_batch.error(step.model.get_weights(), weights) < 1e-12


def test_float32_to_float32_rounding(strategies):
    """Tolerance 2e-6; SGD, since Adam's division amplifies rounding of gradients near 0."""
    batches = without_zero_sums(windows("mlp"))
    step = make(strategies["mirrored3"], "mlp", "sgd", clip_norm=0.3)
    for batch in batches:
        step(batch)
    weights, _ = reference("mlp", "sgd", batches, clip_norm=0.3)
    assert full_batch.error(step.model.get_weights(), weights) < 2e-6


def test_rows_dealt_out_by_the_caller_with_an_empty_replica(float64, strategies):
    strategy = strategies["mirrored3"]
    features, labels, weights = full_batch.batch("mlp")
    cuts = [slice(0, 2), slice(2, 2), slice(2, 11)]

    def deal(x):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(x[cuts[context.replica_id_in_sync_group]])
        )

    step = make(strategy)
    step((deal(features), deal(labels), deal(weights)))
    expected, _ = reference("mlp", "adamw", [(features, labels, weights)])
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12


@pytest.mark.parametrize("name", ["one_device", "mirrored2"])
def test_a_loop_of_steps_is_the_steps_one_by_one(float64, strategies, name):
    batches = without_zero_sums(windows("mlp"))
    one_by_one = make(strategies[name])
    for batch in batches:
        one_by_one(batch)
    step = make(strategies[name])
    types = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), batches[0]
    )
    dataset = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=types)
    iterator = iter(dataset)
    first, rest = step.run(iterator, 1), step.run(iterator, 100)
    assert (first.steps, first.exhausted, first.rows) == (1, False, 11)
    assert (rest.steps, rest.exhausted, rest.rows) == (3, True, 19)
    assert step._loop_function.experimental_get_tracing_count() == 1
    assert full_batch.error(step.model.get_weights(), one_by_one.model.get_weights()) == 0


@pytest.mark.parametrize("name", ["none", "mirrored2"])
def test_a_window_without_weight_changes_nothing_and_is_counted(float64, strategies, name):
    batches = without_zero_sums(windows("mlp"))
    features, labels, weights = batches[1]
    step = make(strategies[name], ema_momentum=0.9)
    step(batches[0])
    report = step((features, labels, np.zeros_like(weights)))
    assert not bool(report.applied)
    step((features[:0], labels[:0], weights[:0]))
    step(batches[1])
    expected, averages = reference("mlp", "adamw", batches[:2], ema_momentum=0.9)
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12
    assert full_batch.error([a.numpy() for a in step.averages], averages) < 1e-12
    assert step.skipped == {"empty": 2, "non_finite": 0, "loss_scale": 0}
    assert int(step.optimizer.iterations.numpy()) == 2
    assert int(step.step.numpy()) == 4


@pytest.mark.parametrize("name", ["none", "mirrored2"])
def test_a_window_that_is_not_finite_is_skipped_when_asked(float64, strategies, name):
    batches = without_zero_sums(windows("mlp"))
    features, labels, weights = (x.copy() for x in batches[0])
    features[-1, 0] = np.nan  # on the last replica only
    weights[-1] = 1.0
    step = make(strategies[name], non_finite="skip")
    step((features, labels, weights))
    step(batches[1])
    expected, _ = reference("mlp", "adamw", batches[1:2])
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12
    assert step.skipped == {"empty": 0, "non_finite": 1, "loss_scale": 0}


def test_a_window_that_is_not_finite_stops_the_loop_where_it_is(float64, strategies):
    good = full_batch.batch("mlp")
    bad = (good[0] * np.inf, good[1], np.ones_like(good[2]))
    step = make(strategies["mirrored2"])
    stacked = [np.stack(x) for x in zip(good, good, bad, good, strict=True)]
    iterator = iter(tf.data.Dataset.from_tensor_slices(tuple(stacked)))
    with pytest.raises(
        NonFiniteError, match=r"step 3: the gradient of .*kernel.* not finite.*skip"
    ):
        step.run(iterator, 10)
    expected, _ = reference("mlp", "adamw", [good, good])
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12
    assert int(step.step.numpy()) == 2


def test_clipping_per_replica_would_differ(float64, strategies):
    """Pitfall: Keras clips each replica's own gradient before the reduction."""
    features, labels, _ = full_batch.batch("mlp", 12)
    whole = reference("mlp", "sgd", [(features, labels, None)], clip_norm=0.3)[0]
    keras.utils.set_random_seed(1)
    model, optimizer = full_batch.mlp(), OPTIMIZERS["sgd"]()
    halves = []
    for rows in (slice(0, 6), slice(6, 12)):
        _, part = full_batch.full_batch_gradients(model, "mlp", features[rows], labels[rows], None)
        halves.append(tf.clip_by_global_norm(part, 0.3)[0])
    optimizer.apply([(a + b) / 2 for a, b in zip(*halves, strict=True)], model.trainable_variables)
    assert full_batch.error(model.get_weights(), whole) > 1e-4
    step = make(strategies["mirrored2"], "mlp", "sgd", clip_norm=0.3)
    step((features, labels))
    assert full_batch.error(step.model.get_weights(), whole) < 1e-12


def test_a_schedule_per_micro_batch_would_differ(float64, strategies):
    """Pitfall: K micro-batches counted as K steps of the learning-rate schedule."""
    batches = [full_batch.batch("mlp", 12, seed) for seed in range(2)]
    expected, _ = reference("mlp", "adamw_schedule", batches)
    keras.utils.set_random_seed(1)
    model, optimizer = full_batch.mlp(), OPTIMIZERS["adamw_schedule"]()
    for batch in batches:
        _, gradients = full_batch.full_batch_gradients(model, "mlp", *batch)
        optimizer.apply(gradients, model.trainable_variables)
        optimizer.iterations.assign_add(3)  # 4 micro-batches
    assert full_batch.error(model.get_weights(), expected) > 1e-4
    step = make(strategies["none"], "mlp", "adamw_schedule")
    for batch in batches:
        step(batch)
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12


@pytest.mark.parametrize("name", ["one_device", "mirrored2"])
def test_float16_overflow_lowers_the_scale_on_all_replicas_and_training_goes_on(strategies, name):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        step = make(strategies[name], "mlp", "sgd")
    finally:
        keras.config.set_dtype_policy("float32")
    assert step.loss_scale is not None
    before = step.model.get_weights()
    features, labels, _ = full_batch.batch("mlp")
    step((features, labels * 1000))  # the gradient times 2^15 exceeds float16
    assert step.skipped == {"empty": 0, "non_finite": 0, "loss_scale": 1}
    assert float(step.loss_scale.scale.numpy()) == 2.0**14
    assert full_batch.error(step.model.get_weights(), before) == 0
    step.loss_scale.scale.assign(64.0)
    step((features, labels))
    assert int(step.optimizer.iterations.numpy()) == 1
    # float16 carries 11 bits: the update is that of float32 to about 1e-2.
    keras.utils.set_random_seed(1)
    model, optimizer = full_batch.mlp(), OPTIMIZERS["sgd"]()
    weights, _ = full_batch.train(model, optimizer, "mlp", [(features, labels, None)])
    updates = [a - b for a, b in zip(step.model.get_weights(), before, strict=True)]
    expected = [a - b for a, b in zip(weights, before, strict=True)]
    assert full_batch.error(updates, expected) < 1e-2


def test_averages_stand_in_for_the_weights_inside_the_block(float64, strategies):
    step = make(strategies["mirrored2"], ema_momentum=0.5)
    step(full_batch.batch("mlp"))
    trained = step.model.get_weights()
    with step.averaged():
        assert full_batch.error(step.model.get_weights(), [a.numpy() for a in step.averages]) == 0
        assert full_batch.error(step.model.get_weights(), trained) > 1e-3
    assert full_batch.error(step.model.get_weights(), trained) == 0


def batch_norm():
    return keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(name="bn"),
            keras.layers.Dense(1),
        ]
    )


def test_batch_normalisation_is_refused_unless_frozen():
    model = batch_norm()
    with pytest.raises(ValueError, match=r"bn' is a BatchNormalization in training mode.*Layer"):
        TrainStep(model, keras.optimizers.SGD(), "mse", micro_batch_size=2)
    model.get_layer("bn").trainable = False
    step = TrainStep(model, keras.optimizers.SGD(), "mse", micro_batch_size=2)
    assert bool(step(full_batch.batch("mlp")).applied)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clipnorm": 1.0}, "clipnorm=1.0: leave it out"),
        ({"global_clipnorm": 1.0}, "global_clipnorm=1.0.*clip_norm of TrainStep"),
        ({"clipvalue": 1.0}, "clipvalue=1.0"),
        ({"use_ema": True}, "use_ema=True.*ema_momentum"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps=4.*micro_batch_size"),
    ],
)
def test_optimizer_options_that_act_per_replica_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TrainStep(full_batch.mlp(), keras.optimizers.SGD(**options), "mse", micro_batch_size=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"micro_batch_size": 0}, "micro_batch_size=0: use at least 1"),
        ({"micro_batch_size": 2.5}, "micro_batch_size=2.5: use a whole number"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0"),
        ({"ema_momentum": 1.0}, "ema_momentum=1.0"),
        ({"non_finite": "ignore"}, "non_finite='ignore'"),
        ({"added_losses": "max"}, "added_losses='max'"),
        ({"loss_fn": "crossentropy"}, "loss='crossentropy' is not a Keras loss; did you mean"),
        ({"loss_fn": keras.losses.MeanSquaredError(reduction="sum")}, "reduction='sum'"),
        ({"optimizer": "sgd"}, "optimizer='sgd' is not a Keras optimizer"),
        (
            {"optimizer": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())},
            "LossScaleOptimizer decides per replica",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_the_constructor(options, message):
    given = {
        "optimizer": keras.optimizers.SGD(),
        "loss_fn": "mse",
        "micro_batch_size": 2,
        **options,
    }
    with pytest.raises(ValueError, match=message):
        TrainStep(full_batch.mlp(), **given)


def test_a_model_of_another_strategy_is_refused(strategies):
    model = full_batch.mlp()
    with pytest.raises(ValueError, match=r"not created under this strategy.*strategy.scope"):
        TrainStep(
            model,
            keras.optimizers.SGD(),
            "mse",
            micro_batch_size=2,
            strategy=strategies["mirrored2"],
        )


def test_labels_that_would_broadcast_are_refused():
    step = TrainStep(full_batch.mlp(), keras.optimizers.SGD(), "mse", micro_batch_size=2)
    with pytest.raises(ValueError, match=r"labels of shape .* do not fit outputs"):
        step((np.zeros((4, 5), "float32"), np.zeros((4, 3), "float32")))


def test_a_batch_is_a_pair_or_a_triple():
    step = TrainStep(full_batch.mlp(), keras.optimizers.SGD(), "mse", micro_batch_size=2)
    with pytest.raises(ValueError, match=r"a batch is \(features, labels\)"):
        step(np.zeros((4, 5), "float32"))


def test_a_variable_that_the_loss_does_not_use_is_left_alone(float64, strategies):
    """Keras leaves such variables out of the update: no momentum, no weight decay."""
    strategy = strategies["mirrored2"]

    def build():
        keras.utils.set_random_seed(1)
        x = keras.Input((5,), dtype="float64")
        used, unused = keras.layers.Dense(1)(x), keras.layers.Dense(2, name="unused")(x)
        return keras.Model(x, {"used": used, "unused": unused})

    def loss(labels, outputs, weights):
        return tf.reduce_sum((outputs["used"] - labels) ** 2), tf.constant(2.0, tf.float64)

    with strategy.scope():
        model, optimizer = build(), OPTIMIZERS["adamw"]()
    before = model.get_layer("unused").get_weights()
    step = TrainStep(model, optimizer, loss, micro_batch_size=2, strategy=strategy, clip_norm=0.5)
    features, labels, _ = full_batch.batch("mlp")
    step((features, labels))
    assert full_batch.error(model.get_layer("unused").get_weights()[:1], before[:1]) == 0
    one, alone = build(), OPTIMIZERS["adamw"]()
    with tf.GradientTape() as tape:
        # The denominators of six micro-batches add up: three on each replica.
        value = tf.reduce_sum((one(features)["used"] - labels) ** 2) / sum([2.0] * 6)
    used = [v for v in one.trainable_variables if "unused" not in v.path]
    gradients = tape.gradient(value, [v.value for v in used])
    alone.build(one.trainable_variables)
    alone.apply(tf.clip_by_global_norm(gradients, 0.5)[0], used)
    assert full_batch.error(model.get_weights()[:1], one.get_weights()[:1]) < 1e-12


def test_bfloat16_is_the_full_batch_in_bfloat16(strategies):
    """Reference: full batch in float32; bfloat16 carries 8 bits: updates agree to 5e-2."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        step = make(strategies["mirrored2"], "mlp", "sgd")
    finally:
        keras.config.set_dtype_policy("float32")
    assert step.loss_scale is None
    before = step.model.get_weights()
    batch = full_batch.batch("mlp")
    step(batch)
    weights, _ = reference("mlp", "sgd", [batch])
    updates = [a - b for a, b in zip(step.model.get_weights(), before, strict=True)]
    expected = [a - b for a, b in zip(weights, before, strict=True)]
    assert full_batch.error(updates, expected) < 5e-2
