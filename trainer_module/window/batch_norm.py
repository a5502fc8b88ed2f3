"""BatchNormalization in windows, by one of two definitions.

ghost (Hoffer et al., "Train longer, generalize better", 2017): a micro-batch is normalised by its
own mean and variance, through which gradients flow. Once per window, over all values x of a channel
in its n micro-batches on all replicas, as for one full batch:

    mean = Σ x / n,  variance = Σ x² / n - mean²,  moving = m * moving + (1 - m) * batch

frozen: all rows are normalised by the moving mean and variance, which stay as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from trainer_module.common.layers import replaced_calls
from trainer_module.options.step_options import BatchNorm
from trainer_module.window.spec import Placement, placement_of

_Layer = keras.layers.BatchNormalization
# Called within the forward pass: the sums of each layer, as in `GradientSum.statistics`.
_Sums = Callable[[], tuple[tf.Tensor, ...]]


def _layers(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Return the layers that normalise a training batch by its own statistics."""
    layers = model._flatten_layers(include_self=False)
    return [x for x in layers if isinstance(x, _Layer) and x.trainable]


def ghost_layers(
    model: keras.Model, batch_norm: BatchNorm | None
) -> list[keras.layers.BatchNormalization]:
    """Return the layers whose statistics a window sums, in the order of its sums."""
    return _layers(model) if batch_norm == "ghost" else []


def check_batch_norm(model: keras.Model, batch_norm: BatchNorm | None) -> None:
    """Raise ValueError if the model has BatchNormalization that `batch_norm` does not define."""
    layers = _layers(model)
    if batch_norm is None:
        for layer in layers:
            raise ValueError(
                f"layer {layer.path!r} is a BatchNormalization in training mode, and batch_norm is "
                'not set: use batch_norm="ghost" (the statistics of each micro-batch, so the '
                'result depends on micro_batch_size), batch_norm="frozen" (the moving statistics, '
                "to fine-tune a trained model), or GroupNormalization in the model."
            )
    elif not layers:
        raise ValueError(
            f"batch_norm={batch_norm!r}: model {model.name!r} has no BatchNormalization in "
            "training mode; leave it out."
        )
    if batch_norm == "ghost" and type(placement_of(model)) is not Placement:
        raise ValueError(
            "batch_norm='ghost' with a StagedModel: micro-batches stream through its stages; use "
            "batch_norm='frozen', or put the model on one device."
        )
    for layer in layers if batch_norm == "ghost" else ():
        for option in ("synchronized", "renorm"):
            if getattr(layer, option, False):
                raise ValueError(
                    f"batch_norm='ghost': layer {layer.path!r} has {option}=True, which takes "
                    "statistics of other micro-batches; leave it out, or use batch_norm='frozen'."
                )


@contextlib.contextmanager
def batch_norm_calls(model: keras.Model, batch_norm: BatchNorm | None) -> Iterator[_Sums]:
    """Make the layers compute by a definition in the block; None: as they are."""
    layers = _layers(model) if batch_norm else []
    if batch_norm == "frozen":
        with replaced_calls((x, _frozen(x.call)) for x in layers):
            yield tuple
        return
    # A layer may be called several times, or only with training=False.
    sums = [[tf.zeros([3, *x.moving_mean.shape], tf.float64)] for x in layers]
    recorders = [(x, _recorded(x, of_x)) for x, of_x in zip(layers, sums, strict=True)]
    with replaced_calls(recorders, "_moments"):
        yield lambda: tuple(map(tf.add_n, sums))


def _frozen(call: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    def normalize(
        inputs: tf.Tensor, training: bool | None = None, mask: tf.Tensor | None = None
    ) -> tf.Tensor:
        return call(inputs, training=False, mask=mask)

    return normalize


def _recorded(
    layer: keras.layers.BatchNormalization, sums: list[tf.Tensor]
) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Return Keras' computation of moments, which also records n, Σ x and Σ x² per channel."""
    moments = layer._moments

    def record(inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = moments(inputs, mask)
        if mask is None:
            count = tf.cast(tf.size(inputs, tf.int64) / inputs.shape[layer.axis], tf.float64)
        else:
            counted = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))
            count = tf.math.count_nonzero(counted, layer._reduction_axes, dtype=tf.int64)
            count = tf.cast(count, tf.float64)
        # float64, because Σ x² / n - mean² of values far from 0 cancels.
        first, second = (tf.reshape(tf.cast(x, tf.float64), [-1]) for x in (mean, variance))
        sums.append(count * tf.stack([tf.ones_like(first), first, second + first**2]))
        return mean, variance

    return record


def update_moving_statistics(model: keras.Model, sums: Sequence[tf.Tensor]) -> None:
    """Update the moving statistics by the sums over a window, in cross-replica context."""
    layers = _layers(model) if sums else []
    for layer, (count, first, second) in zip(layers, map(tf.unstack, sums), strict=True):
        mean = tf.math.divide_no_nan(first, count)
        variance = tf.maximum(tf.math.divide_no_nan(second, count) - mean**2, 0)
        for variable, value in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
            before = tf.cast(variable.value, tf.float64)
            moved = layer.momentum * before + (1 - layer.momentum) * value
            moved = tf.where(count > 0, moved, before)  # a mask may leave out all values
            variable.value.assign(tf.cast(moved, variable.dtype))
