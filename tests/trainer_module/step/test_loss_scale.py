"""float16: one scale for all replicas, one decision per window."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import accumulate_gradients
from trainer_module.step.reports import NonFiniteError
from trainer_module.step.train_step import TrainStep

FEATURES, LABELS, _ = full_batch.batch("mlp", 12)


def make(strategy, **options):
    with full_batch.precision("mixed_float16"), strategy.scope():
        model = full_batch.mlp()
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    return TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy, **options)


def values_of_replicas(step):
    """Return the values of the trainable variables, one list for each replica."""
    local = step.strategy.experimental_local_results
    each = [[x.numpy() for x in local(v.value)] for v in step.model.trainable_variables]
    return [list(values) for values in zip(*each, strict=True)]


def is_finite(gradients):
    return all(np.all(np.isfinite(g)) for g in gradients)


def test_one_replica_that_overflows_holds_back_all_and_lowers_the_scale(strategies):
    """Pitfall: the first replica looks at its own gradient, which is finite, and all update."""
    step = make(strategies["mirrored2"], ema_momentum=0.5)
    step.loss_scale.scale.assign(256.0)
    before, averages = values_of_replicas(step), [a.numpy() for a in step.averages]
    labels = LABELS.copy()
    labels[-1] = 1e4  # the slope of its square, times 256, is beyond float16
    with full_batch.precision("mixed_float16"):
        alone = full_batch.mlp()
    alone.set_weights(step.model.get_weights())
    data = FEATURES[:6], labels[:6], None
    first = accumulate_gradients(
        alone, "mse", *data, micro_batch_size=6, loss_scale=tf.constant(256.0)
    )
    assert is_finite(first.gradients)
    report = step((FEATURES, labels))
    assert not bool(report.applied)
    assert step.skipped == {"empty": 0, "non_finite": 0, "loss_scale": 1}
    assert step.loss_scale.scale.numpy() == 128.0
    for replica, values in enumerate(values_of_replicas(step)):
        assert full_batch.error(values, before[replica]) == 0
    assert full_batch.error([a.numpy() for a in step.averages], averages) == 0
    assert step.optimizer.iterations.numpy() == 0
    # Later windows that fit update every replica alike.
    assert bool(step((FEATURES, LABELS)).applied)
    after = values_of_replicas(step)
    assert len(after) == 2
    assert is_finite(after[0])
    assert full_batch.error(after[0], before[0]) > 1e-3
    assert full_batch.error(after[-1], after[0]) == 0


def test_the_scale_grows_after_2000_finite_windows_up_to_its_limit():
    step = make(tf.distribute.get_strategy())
    for scale, windows, grown in [(64, 1998, 64), (64, 1999, 128), (2.0**24, 1999, 2.0**24)]:
        step.loss_scale.scale.assign(scale)
        step.loss_scale.finite_windows.assign(windows)
        assert bool(step((FEATURES * 1e-6, LABELS * 1e-6)).applied)
        assert step.loss_scale.scale.numpy() == grown
        assert step.loss_scale.finite_windows.numpy() == (1999 if windows == 1998 else 0)


@pytest.mark.parametrize("non_finite", ["raise", "skip"])
def test_at_scale_1_an_overflow_counts_as_not_finite(non_finite):
    """Above 1 overflow is expected, and no reason to stop; at 1 there is nothing to lower."""
    step = make(tf.distribute.get_strategy(), non_finite=non_finite)
    step.loss_scale.scale.assign(2.0)
    bad = FEATURES.copy()
    bad[-1] = np.nan
    assert not bool(step((bad, LABELS)).applied)
    assert (float(step.loss_scale.scale), step.skipped["loss_scale"]) == (1.0, 1)
    if non_finite == "skip":
        assert not bool(step((bad, LABELS)).applied)
        assert step.skipped == {"empty": 0, "non_finite": 1, "loss_scale": 1}
    else:
        with pytest.raises(NonFiniteError, match="step 2: "):
            step((bad, LABELS))
    assert float(step.loss_scale.scale) == 1.0


def test_without_a_scale_small_gradients_would_vanish():
    """Pitfall: 1e-8 is 0 in float16. Reference: 1e-8 Σ x_i / n in float64; tolerance 1e-3."""

    def loss(labels, outputs, sample_weight):
        rows = tf.cast(tf.shape(labels)[0], tf.float32)
        return 1e-8 * tf.reduce_sum(tf.cast(outputs, tf.float32)), rows

    with full_batch.precision("mixed_float16"):
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((5, 1))])
    unscaled = accumulate_gradients(model, loss, FEATURES, LABELS, micro_batch_size=5)
    assert not np.any(unscaled.gradients[0])
    step = TrainStep(model, keras.optimizers.SGD(1.0), loss, micro_batch_size=5)
    step((FEATURES, LABELS))
    wanted = -1e-8 * FEATURES.astype("float64").mean(0)
    np.testing.assert_allclose(model.get_weights()[0][:, 0], wanted, atol=1e-3 * abs(wanted).max())


def heavy_tokens(policy):
    """40 rows of 2,048 tokens, all of one class: Σ over tokens is beyond float16 at any scale."""
    with full_batch.precision(policy):
        x = keras.Input((2048,), dtype="int32")
        model = keras.Model(x, keras.layers.Dense(16)(keras.layers.Embedding(8, 4)(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ids = np.random.default_rng(0).integers(0, 8, [40, 2048])
    return model, loss, 40, (ids, np.full_like(ids, 3))


def heavy_rows(policy):
    """10,000 rows in a micro-batch and slopes of about 16."""
    with full_batch.precision(policy):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    x = np.random.default_rng(0).uniform(0.5, 1.5, [20_000, 3]).astype("float32")
    return model, "mse", 10_000, (x, x.sum(1, keepdims=True) + 5)


@pytest.mark.parametrize("make_heavy", [heavy_tokens, heavy_rows])
def test_many_rows_in_float16_overflow_no_sooner_than_few(make_heavy):
    """Reference: the same in float32, three steps. Tolerance: 1 % of each variable's change."""
    trained = []
    for policy in ("float32", "mixed_float16"):
        keras.utils.set_random_seed(0)
        model, loss, size, data = make_heavy(policy)
        first = model.get_weights()
        step = TrainStep(model, keras.optimizers.SGD(0.02), loss, micro_batch_size=size)
        assert (step.loss_scale is None) == (policy == "float32")
        while int(step.optimizer.iterations.numpy()) < 3:
            assert bool(step(data).applied) or step.loss_scale.scale > 1
        trained.append([w - f for w, f in zip(model.get_weights(), first, strict=True)])
    assert full_batch.error(trained[1], trained[0]) < 1e-2


def test_separate_outputs_in_float16(strategies):
    """Each output has its own Σ w, "a" a third of the rows, and none on some micro-batches.

    Reference: the update of docs/design.md §4.1 in NumPy's float64, 12 steps. Tolerance: 1 % of
    each variable's change. Divided by one denominator for both, changes are off by a quarter.
    """
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 5))
    y = {head: random.normal(size=(64, 1)) for head in "ab"}
    w = {"a": (np.arange(64) % 16 < 5) * random.random(64), "b": 0.5 + random.random(64)}
    strategy = strategies["mirrored2"]
    with strategy.scope(), full_batch.precision("mixed_float16"):
        inputs = keras.Input((5,))
        heads = {
            head: keras.layers.Dense(1, kernel_initializer="zeros", name=head)(inputs)
            for head in "ba"
        }
        model = keras.Model(inputs, heads)
        step = TrainStep(
            model,
            keras.optimizers.SGD(0.1),
            {"b": "mse", "a": "mse"},
            micro_batch_size=4,
            strategy=strategy,
        )
    batch = tf.nest.map_structure(lambda t: tf.constant(t, tf.float32), (x, y, w))
    while int(step.optimizer.iterations.numpy()) < 12:
        assert bool(step(batch).applied) or step.loss_scale.scale > 1
    for head in "ab":
        kernel, bias = np.zeros((5, 1)), np.zeros(1)
        for _ in range(12):
            slope = 2 * w[head][:, None] * (x @ kernel + bias - y[head]) / w[head].sum()
            kernel, bias = kernel - 0.1 * x.T @ slope, bias - 0.1 * slope.sum(0)
        assert full_batch.error(model.get_layer(head).get_weights(), [kernel, bias]) < 1e-2
