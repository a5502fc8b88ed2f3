"""Optimizer steps on every strategy against full-batch training on one device.

Reference: full_batch.train, float64. Tolerance: 1e-12 of each variable's largest value.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.reports import NonFiniteError
from trainer_module.step.train_step import TrainStep

pytestmark = pytest.mark.usefixtures("passes_of_one")

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adamw": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.01),
    "adamw_schedule": lambda: keras.optimizers.AdamW(
        keras.optimizers.schedules.CosineDecay(0.05, 10)
    ),
}


def make(strategy, kind="mlp", optimizer="adamw", *, micro_batch_size=3, **options):
    """Return a TrainStep whose weights are the same for every strategy."""
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


def iterator_over(batches):
    """Return an iterator of a dataset that knows all axes but the rows."""
    types = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), batches[0]
    )
    return iter(tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=types))


def test_distributed_values_with_an_empty_replica(float64, strategies):
    strategy = strategies["mirrored2"]
    features, labels, weights = full_batch.batch("mlp")
    cuts = [slice(0, 0), slice(0, 11)]

    def deal(x):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(x[cuts[context.replica_id_in_sync_group]])
        )

    step = make(strategy)
    step((deal(features), deal(labels), deal(weights)))
    expected, _ = reference("mlp", "adamw", [(features, labels, weights)])
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12


def test_a_loop_of_steps_is_the_steps_one_by_one(float64, strategies):
    batches = without_zero_sums(windows("mlp"))
    one_by_one = make(strategies["mirrored2"])
    for batch in batches:
        one_by_one(batch)
    step = make(strategies["mirrored2"])
    iterator = iterator_over(batches)
    first, rest = step.run(iterator, 1), step.run(iterator, 100)
    assert (first.steps, first.exhausted, first.rows) == (1, False, 11)
    assert (rest.steps, rest.exhausted, rest.rows) == (3, True, 19)
    assert step._loop_function.experimental_get_tracing_count() == 1
    assert full_batch.error(step.model.get_weights(), one_by_one.model.get_weights()) == 0


def test_a_window_without_weight_changes_nothing_and_is_counted(float64, strategies):
    batches = without_zero_sums(windows("mlp"))
    features, labels, weights = batches[1]
    step = make(strategies["mirrored2"], ema_momentum=0.9)
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


def test_a_window_that_is_not_finite_is_skipped_when_asked(float64, strategies):
    """It reaches neither weights, momentum, EMA, schedule nor the reported loss."""
    batches = without_zero_sums(windows("mlp"))
    features, labels, weights = (x.copy() for x in batches[0])
    features[-1, 0] = np.nan  # on the last replica only
    weights[-1] = 1.0
    options = {"optimizer": "adamw_schedule", "ema_momentum": 0.9}
    step = make(strategies["mirrored2"], non_finite="skip", **options)
    report = step.run(iterator_over([batches[1], (features, labels, weights), batches[2]]), 10)
    expected, averages = reference("mlp", batches=batches[1:3], **options)
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12
    assert full_batch.error([a.numpy() for a in step.averages], averages) < 1e-12
    assert step.skipped == {"empty": 0, "non_finite": 1, "loss_scale": 0}
    assert (report.steps, step.optimizer.iterations.numpy(), step.step.numpy()) == (3, 2, 3)
    assert np.isfinite(report.loss)


def test_nan_in_labels_or_weights_stops_the_run():
    features, labels, weights = full_batch.batch("mlp")
    weights += 0.1
    missing = np.where(np.arange(len(weights)) == 3, np.nan, 0.0).astype("float32")
    step = make(tf.distribute.get_strategy())
    for bad in ((labels + missing[:, None], weights), (labels, weights + missing)):
        with pytest.raises(
            NonFiniteError, match=r"loss nan.*labels and weights, and for weights below"
        ):
            step((features, *bad))
    weights[3], labels[3] = -1.0, 0.0
    with pytest.raises(NonFiniteError, match=r"step 1: the loss is not finite"):
        step((features, labels, weights))
    assert step.optimizer.iterations.numpy() == 0


def test_a_window_that_is_not_finite_stops_the_loop_where_it_is(float64, strategies):
    good = full_batch.batch("mlp")
    bad = (good[0] * np.inf, good[1], np.ones_like(good[2]))
    step = make(strategies["none"])
    stacked = [np.stack(x) for x in zip(good, good, bad, good, strict=True)]
    iterator = iter(tf.data.Dataset.from_tensor_slices(tuple(stacked)))
    with pytest.raises(
        NonFiniteError, match=r"step 3: the gradient of .*kernel.* not finite.*skip"
    ):
        step.run(iterator, 10)
    expected, _ = reference("mlp", "adamw", [good, good])
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12
    assert int(step.step.numpy()) == 2


def test_averages_of_16_bit_variables_are_kept_in_32(strategies):
    """Pitfall: a momentum of 0.999 is 1 in bfloat16. Reference: NumPy on the weights seen, 1e-6."""
    strategy = strategies["none"]
    with full_batch.precision("bfloat16"), strategy.scope():
        model, optimizer = full_batch.mlp(), keras.optimizers.SGD(0.01)
    assert float(tf.cast(0.999, tf.bfloat16)) == 1
    step = TrainStep(
        model, optimizer, "mse", micro_batch_size=3, strategy=strategy, ema_momentum=0.999
    )
    expected = [w.astype("float64") for w in model.get_weights()]
    for seed in range(5):
        step(full_batch.batch("mlp", 12, seed))
        expected = [
            0.999 * e + 0.001 * w.astype("float64")
            for e, w in zip(expected, model.get_weights(), strict=True)
        ]
    assert full_batch.error([a.numpy() for a in step.averages], expected) < 1e-6
    with step.averaged():
        for found, average in zip(model.get_weights(), step.averages, strict=True):
            assert np.array_equal(found, average.numpy().astype(found.dtype))


def test_constraints_and_stateful_optimizers(float64, strategies):
    """Nadam keeps a product over steps; a constraint acts after the update and before the EMA."""
    batches = without_zero_sums(windows("mlp"))

    def build():
        keras.utils.set_random_seed(1)
        constraint = keras.constraints.MaxNorm(0.5)
        return full_batch.mlp(kernel_constraint=constraint), keras.optimizers.Nadam(0.05)

    strategy = strategies["one_device"]
    with strategy.scope():
        model, optimizer = build()
    step = TrainStep(
        model, optimizer, "mse", micro_batch_size=2, strategy=strategy, ema_momentum=0.9
    )
    for batch in batches:
        step(batch)
    weights, averages = full_batch.train(*build(), "mlp", batches, ema_momentum=0.9)
    assert full_batch.error(model.get_weights(), weights) < 1e-12
    assert full_batch.error([a.numpy() for a in step.averages], averages) < 1e-12
    # Inside the block the averages stand in for the weights.
    trained = model.get_weights()
    with step.averaged():
        assert full_batch.error(model.get_weights(), [a.numpy() for a in step.averages]) == 0
        assert full_batch.error(model.get_weights(), trained) > 1e-3
    assert full_batch.error(model.get_weights(), trained) == 0
    free, _ = reference("mlp", "sgd", batches)
    assert np.linalg.norm(weights[0], axis=0).max() <= 0.5 + 1e-6
    assert np.linalg.norm(free[0], axis=0).max() > 0.5


def test_windows_of_other_lengths_run_without_tracing_again(float64, strategies):
    """Sequences padded to their window's longest. Reference: full_batch.train, 1e-12."""
    random = np.random.default_rng(0)
    batches = []
    for rows, time in ((7, 3), (5, 6), (2, 4)):
        ids = random.integers(0, 7, (rows, time)), random.integers(0, 7, (rows, time))
        batches.append((*ids, random.uniform(size=(rows, time))))

    def build():
        keras.utils.set_random_seed(1)
        return full_batch.tokens(time=None), OPTIMIZERS["adamw"]()

    strategy = strategies["one_device"]
    with strategy.scope():
        model, optimizer = build()
    loss = full_batch.loss_for("tokens")
    step = TrainStep(model, optimizer, loss, micro_batch_size=2, strategy=strategy)
    types = tuple(tf.TensorSpec([None, None], x.dtype) for x in batches[0])
    dataset = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=types)
    assert step.run(iter(dataset), 10).steps == 3
    assert step._loop_function.experimental_get_tracing_count() == 1
    weights, _ = full_batch.train(*build(), "tokens", batches)
    assert full_batch.error(model.get_weights(), weights) < 1e-12


def test_a_variable_that_the_loss_does_not_use_is_left_alone(float64, strategies):
    """Keras leaves such variables out of the update: no momentum, no weight decay."""
    strategy = strategies["mirrored2"]

    def build():
        keras.utils.set_random_seed(1)
        x = keras.Input((5,), dtype="float64")
        used, unused = keras.layers.Dense(1)(x), keras.layers.Dense(2, name="unused")(x)
        return keras.Model(x, {"used": used, "unused": unused})

    def loss(labels, outputs, weights):
        rows = tf.cast(tf.shape(labels)[0], tf.float64)
        return tf.reduce_sum((outputs["used"] - labels) ** 2), rows

    with strategy.scope():
        model, optimizer = build(), OPTIMIZERS["adamw"]()
    before = model.get_layer("unused").get_weights()
    step = TrainStep(model, optimizer, loss, micro_batch_size=2, strategy=strategy, clip_norm=0.5)
    features, labels, _ = full_batch.batch("mlp")
    step((features, labels))
    assert full_batch.error(model.get_layer("unused").get_weights()[:1], before[:1]) == 0
    one, alone = build(), OPTIMIZERS["adamw"]()
    with tf.GradientTape() as tape:
        value = tf.reduce_mean((one(features)["used"] - labels) ** 2)
    used = [v for v in one.trainable_variables if "unused" not in v.path]
    gradients = tape.gradient(value, [v.value for v in used])
    alone.build(one.trainable_variables)
    alone.apply(tf.clip_by_global_norm(gradients, 0.5)[0], used)
    assert full_batch.error(model.get_weights()[:1], one.get_weights()[:1]) < 1e-12


def test_float32_and_float64_variables_in_one_model(strategies):
    """Reference: Keras' own train_on_batch of the whole batch. Tolerance: 1e-6, float32's."""
    features, labels, _ = full_batch.batch("mlp", 12)

    def build():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(4), keras.layers.Dense(1, dtype="float64")]
        return keras.Sequential([keras.Input((5,)), *layers]), keras.optimizers.SGD(0.1)

    alone, optimizer = build()
    alone.compile(optimizer, "mse", run_eagerly=True)
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model, optimizer = build()
    step = TrainStep(
        model,
        optimizer,
        "mse",
        micro_batch_size=5,
        strategy=strategy,
        clip_norm=1e6,
        ema_momentum=0.9,
    )
    first = model.get_weights()
    for _ in range(3):
        alone.train_on_batch(features, labels)
        assert bool(step((features, labels)).applied)
    assert {w.dtype.name for w in model.get_weights()} == {"float32", "float64"}
    assert full_batch.error(model.get_weights(), alone.get_weights()) < 1e-6
    assert full_batch.error(model.get_weights(), first) > 1e-3


@pytest.mark.skipif(not hasattr(keras.optimizers, "MultiOptimizer"), reason="Keras before 3.13")
def test_several_optimizers_in_one(float64, strategies):
    """A variable that the loss does not use among them. Reference: train_on_batch, 1e-12."""
    features, labels, _ = full_batch.batch("mlp", 12)

    def build(unused=False):
        keras.utils.set_random_seed(1)
        x = keras.Input((5,), dtype="float64")
        hidden = keras.layers.Dense(3, name="first")(x)
        outputs = {"y": keras.layers.Dense(1, name="last")(hidden)}
        if unused:
            outputs["unused"] = keras.layers.Dense(2, name="unused")(hidden)
        found = keras.optimizers.Adam(0.05), keras.optimizers.SGD(0.1)
        optimizer = keras.optimizers.MultiOptimizer(lambda v: found["last" in v.path])
        return keras.Model(x, outputs), optimizer

    def loss(labels, outputs, weights):
        rows = tf.cast(tf.shape(labels)[0], tf.float64)
        return tf.reduce_sum((outputs["y"] - labels) ** 2), rows

    alone, optimizer = build()
    alone.compile(optimizer, {"y": "mse"}, run_eagerly=True)
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model, optimizer = build(unused=True)
    step = TrainStep(model, optimizer, loss, micro_batch_size=5, strategy=strategy)
    batches = tf.data.Dataset.from_tensors((features, labels)).repeat(3)
    result = TrainingLoop(step, batches, epochs=1).fit()
    for _ in range(3):
        alone.train_on_batch(features, {"y": labels})
    assert result.steps == 3
    for layer in ("first", "last"):
        weights = alone.get_layer(layer).get_weights()
        assert full_batch.error(model.get_layer(layer).get_weights(), weights) < 1e-12


def test_the_replica_that_a_window_is_not_finite_on_is_named(float64, strategies):
    features, labels, weights = (x.copy() for x in full_batch.batch("mlp"))
    weights += 0.1
    labels[-1] = np.nan  # on the last replica only
    step = make(strategies["mirrored2"])
    with pytest.raises(NonFiniteError, match=r"step 1: the .* is not finite on replica 1 \(loss"):
        step((features, labels, weights))
    labels[0] = np.nan
    with pytest.raises(NonFiniteError, match=r"not finite on replicas 0, 1 \(loss nan"):
        step((features, labels, weights))


def test_skipping_gives_up_after_so_many_windows_in_a_row(float64, strategies):
    """A finite window in between resets the count; an empty one does not."""
    good = (*full_batch.batch("mlp", 5)[:2], np.ones(5))
    bad = (np.full_like(good[0], np.nan), *good[1:])
    empty = (*good[:2], np.zeros(5))
    step = make(strategies["none"], non_finite="skip", max_consecutive_skips=2)
    step.run(iterator_over([bad, bad, good, bad, empty, bad]), 10)
    assert step.skipped == {"empty": 1, "non_finite": 4, "loss_scale": 0}
    before = step.model.get_weights()
    with pytest.raises(
        NonFiniteError, match=r"step 7: .*and 2 windows directly before it.*max_consecutive_skips"
    ):
        step.run(iterator_over([bad, good]), 10)
    assert step.skipped["non_finite"] == 4
    assert full_batch.error(step.model.get_weights(), before) == 0.0
    assert step.step.numpy() == 6
