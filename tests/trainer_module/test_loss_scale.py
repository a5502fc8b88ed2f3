"""float16: one scale for all replicas, one decision per window."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import accumulate_gradients
from trainer_module.reports import NonFiniteError
from trainer_module.train_step import TrainStep

FEATURES, LABELS, _ = full_batch.batch("mlp", 12)


def make(strategy, **options):
    with full_batch.precision("mixed_float16"), strategy.scope():
        model = full_batch.mlp()
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    return TrainStep(model, optimizer, "mse", micro_batch_size=2, strategy=strategy, **options)


def values_of_replicas(step):
    """Returns the values of the trainable variables, one list for each replica."""
    local = step.strategy.experimental_local_results
    each = [[x.numpy() for x in local(v.value)] for v in step.model.trainable_variables]
    return [list(values) for values in zip(*each, strict=True)]


def is_finite(gradients):
    return all(np.all(np.isfinite(g)) for g in gradients)


@pytest.mark.parametrize(("name", "replicas"), [("one_device", 1), ("mirrored2", 2)])
def test_one_replica_that_overflows_holds_back_all_and_lowers_the_scale(strategies, name, replicas):
    """Pitfall: the first replica looks at its own gradient, which is finite, and all update."""
    step = make(strategies[name], ema_momentum=0.5)
    step.loss_scale.scale.assign(256.0)
    before, averages = values_of_replicas(step), [a.numpy() for a in step.averages]
    labels = LABELS.copy()
    labels[-1] = 1e4  # the slope of its square, times 256, is beyond float16
    if replicas == 1:
        data = FEATURES[:6], labels[:6], None
        first = accumulate_gradients(
            step.model, "mse", *data, micro_batch_size=2, loss_scale=tf.constant(256.0)
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
    # Windows that fit go on from there, on every replica alike.
    assert bool(step((FEATURES, LABELS)).applied)
    after = values_of_replicas(step)
    assert len(after) == replicas
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
def test_at_scale_1_a_window_is_not_finite_by_itself(non_finite):
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
