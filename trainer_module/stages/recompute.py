"""Recompute a layer's activations in the backward pass, or compute its gradient on a given device.

    forward    outputs = layer(inputs)
    backward   (`again`: recompute forward,)
               gradient of the inputs = ∂layer · gradient of the outputs

TensorFlow's tape sets no device for the gradient's operations, so a stage's gradient would not be
computed on the device of the stage. `tf.recompute_grad` runs a Keras layer with different dropout
masks, because the layer's seeds have changed. Here the second forward pass has the seeds, the
variables and the masks of the first.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import Gradient, Tensors
from trainer_module.losses.loss_values import mask_of
from trainer_module.window.trace import in_window_forward_pass, window_forward_pass

# Ids of the layers that `custom_gradient` is calling.
_under_way: contextvars.ContextVar[frozenset[int]] = contextvars.ContextVar(
    "layers with a custom gradient that are being called", default=frozenset()
)


def recompute(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Make a layer keep only its inputs in windows and run again for its gradient.

    The second run has the variables, masks and random numbers of the first, so the gradient is the
    same. The cost is the time of one more forward pass. A layer that contains other layers (a
    block, a Sequential, a stage) drops all their intermediate activations. Outside of windows
    (`fit`, evaluation, export) the layer's behaviour does not change.

    Args:
        layer: Any layer, built or not; it is changed in place.

    Returns:
        The layer.
    """
    call = layer.call
    if getattr(call, "recomputes", False):
        return layer

    def call_recomputed(*args: object, **kwargs: object) -> Tensors:
        flat = tf.nest.flatten((args, kwargs))
        is_symbolic = any(isinstance(x, keras.KerasTensor) for x in flat)
        if is_symbolic or not uses_custom_gradient(layer):
            return call(*args, **kwargs)
        return custom_gradient(layer, call, whole, args, kwargs, again=True)

    def whole(*args: object, **kwargs: object) -> Tensors:
        # The layer with its casts: the backward pass calls it, where no call of it is active.
        return layer(*args, **{**kwargs, "training": True})

    vars(call_recomputed).update(
        recomputes=True,
        jit_compile_error=(
            "XLA decides which activations it keeps, and would keep those that layer "
            f"{layer.name!r} recomputes; leave jit_compile off, or recompute."
        ),
    )
    layer.call = call_recomputed
    return layer


def recompute_layers(model: keras.Model, names: Iterable[str], *, field: str = "recompute") -> None:
    """Call `recompute` on a model's layers by name, including nested layers."""
    found: dict[str, list[keras.layers.Layer]] = {}
    for layer in model._flatten_layers(include_self=False):
        found.setdefault(layer.name, []).append(layer)
    for name in names:
        if name not in found:
            raise ValueError(
                f"{field}={name!r} is not a layer of model {model.name!r}; {nearest(name, found)}"
            )
        for layer in found[name]:
            recompute(layer)


def uses_custom_gradient(layer: keras.layers.Layer) -> bool:
    """Return whether a call of the layer has to use `custom_gradient` in the current context."""
    return in_window_forward_pass() and id(layer) not in _under_way.get()


def _on_device(device: str | None) -> contextlib.AbstractContextManager[object]:
    """Return the context `tf.device`. None keeps the current device, unlike `tf.device(None)`."""
    return contextlib.nullcontext() if device is None else tf.device(device)


class _Ran(NamedTuple):
    """The results of calling a layer."""

    outputs: Tensors
    masks: list[tf.Tensor | None]  # the Keras mask of each tensor of `outputs`, or None
    losses: list[tf.Tensor]  # losses that were passed to `add_loss`
    # New value of each non-trainable variable, including seeds; None if unchanged
    updates: list[tf.Tensor | None]

    def tensors(self) -> list[tf.Tensor]:
        parts = (tf.nest.flatten(self.outputs), self.masks, self.losses, self.updates)
        return [tensor for part in parts for tensor in part if tensor is not None]

    def differentiable(self) -> list[tf.Tensor]:
        return [*tf.nest.flatten(self.outputs), *self.losses]

    def like(self, tensors: Sequence[tf.Tensor]) -> _Ran:
        rest = iter(tensors)

        def next_of(part: list[tf.Tensor | None]) -> list[tf.Tensor | None]:
            return [None if tensor is None else next(rest) for tensor in part]

        outputs = tf.nest.pack_sequence_as(
            self.outputs, next_of(tf.nest.flatten(self.outputs)), expand_composites=False
        )
        return _Ran(outputs, next_of(self.masks), next_of(self.losses), next_of(self.updates))


def custom_gradient(
    layer: keras.layers.Layer,
    call: Callable[..., Tensors],
    again_call: Callable[..., Tensors],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    *,
    again: bool,
    device: str | None = None,
) -> Tensors:
    """Return `call(*args, **kwargs)` with the gradient that the module describes.

    With `again`, only the inputs are kept, and the forward pass is computed again in the backward
    pass, by `again_call`, since no enclosing layer is being called there.
    """
    trained = list(layer.trainable_variables)
    known = {id(variable) for variable in trained}
    others = [variable for variable in layer.variables if id(variable) not in known]
    flat = tf.nest.flatten((args, kwargs))
    places = [i for i, x in enumerate(flat) if tf.is_tensor(x)]
    masks = [mask_of(flat[i]) for i in places]
    # Without a cast: each inner layer casts to its compute dtype.
    with keras.src.backend.AutocastScope(None):
        values = [tf.convert_to_tensor(variable.value) for variable in (*trained, *others)]
    inputs = [
        *values,
        *(flat[i] for i in places),
        *(mask for mask in masks if mask is not None),
    ]
    shape: list[_Ran] = []
    under_way = _under_way.get() | {id(layer)}

    def run(call: Callable[..., Tensors], inputs: Sequence[tf.Tensor]) -> _Ran:
        rest = iter(inputs)
        mapping = [(variable, next(rest)) for variable in (*trained, *others)]
        filled = list(flat)
        for i in places:
            filled[i] = next(rest)
        for i, mask in zip(places, masks, strict=True):
            if mask is not None:
                filled[i]._keras_mask = next(rest)
        args_, kwargs_ = tf.nest.pack_sequence_as((args, kwargs), filled)
        scope = keras.StatelessScope(mapping, collect_losses=True, initialize_variables=False)
        token = _under_way.set(under_way)
        try:
            # The backward pass is traced outside of the window's forward pass, so mark it again.
            with scope, window_forward_pass():
                outputs = call(*args_, **kwargs_)
        finally:
            _under_way.reset(token)
        before = {id(v): value for v, value in mapping[len(trained) :]}
        now = [scope.get_current_value(variable) for variable in others]
        return _Ran(
            outputs=outputs,
            masks=[mask_of(tensor) for tensor in tf.nest.flatten(outputs)],
            losses=[tf.convert_to_tensor(loss) for loss in scope.losses],
            updates=[
                None if value is before[id(v)] else tf.convert_to_tensor(value)
                for v, value in zip(others, now, strict=True)
            ],
        )

    @tf.custom_gradient
    def forward(
        *inputs: tf.Tensor,
    ) -> tuple[list[tf.Tensor], Callable[..., list[Gradient]]]:
        with _on_device(device), _tape(inputs, unless=again) as tape:
            ran = run(call, inputs)
        shape.append(ran)

        def backward(*slopes: Gradient) -> list[Gradient]:
            wanted = ran.like(slopes).differentiable()
            with _on_device(device):
                if tape is not None:
                    return _gradients(tape, ran.differentiable(), inputs, wanted)
                # Compute the copies only after the slopes, as separate operations, so that the
                # first forward pass is not kept.
                with tf.control_dependencies([s for s in slopes if s is not None]):
                    copies = [tf.identity(tensor) for tensor in inputs]
                with _tape(copies) as second:
                    once_more = run(again_call, copies)
                return _gradients(second, once_more.differentiable(), copies, wanted)

        return ran.tensors(), backward

    made = forward(*inputs)
    ran = shape[-1].like(made)
    for variable, update in zip(others, ran.updates, strict=True):
        if update is not None:
            variable.assign(update)
    for loss in ran.losses:
        layer.add_loss(loss)
    for tensor, mask in zip(tf.nest.flatten(ran.outputs), ran.masks, strict=True):
        if mask is not None:
            tensor._keras_mask = mask
    return ran.outputs


@contextlib.contextmanager
def _tape(inputs: Sequence[tf.Tensor], unless: bool = False) -> Iterator[tf.GradientTape | None]:
    if unless:
        yield None
        return
    # Persistent: a window with several outputs computes the gradient of each.
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch([tensor for tensor in inputs if _is_real(tensor)])
        yield tape


def _gradients(
    tape: tf.GradientTape,
    outputs: Sequence[tf.Tensor],
    inputs: Sequence[tf.Tensor],
    slopes: Sequence[Gradient],
) -> list[Gradient]:
    pairs = [
        (output, tf.convert_to_tensor(slope))
        # A call of the whole layer also has the layer's activity regulariser as a loss.
        for output, slope in zip(outputs, slopes, strict=False)
        if slope is not None and _is_real(output)
    ]
    real = [tensor for tensor in inputs if _is_real(tensor)]
    found = iter(tape.gradient([o for o, _ in pairs], real, output_gradients=[s for _, s in pairs]))
    return [next(found) if _is_real(tensor) else None for tensor in inputs]


def _is_real(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating
