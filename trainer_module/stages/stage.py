"""Run one stage of a model on a separate device."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.stages.custom_gradient import custom_gradient, uses_custom_gradient


class Stage(keras.layers.Layer):
    """A layer that runs forward and backward on the device of its variables.

    Attributes:
        inner: The layer or model of the stage.
        devices: One device per replica.
        recomputed: Whether the backward pass recomputes the activations.
    """

    def __init__(
        self, inner: keras.layers.Layer, devices: tuple[str, ...], *, recomputed: bool = False
    ) -> None:
        """Wrap a built layer.

        Args:
            inner: A built layer or model.
            devices: One device per replica.
            recomputed: Whether the backward pass recomputes the activations.
        """
        # The inputs are the outputs of the previous stage and are not cast here.
        super().__init__(name=f"stage_of_{inner.name}", dtype=inner.dtype_policy, autocast=False)
        self.inner = inner
        self.devices = devices
        self.recomputed = recomputed
        self.supports_masking = True
        self.built = True

    @property
    def device(self) -> str:
        """The device of the replica whose graph is being built."""
        return self.devices[_replica()]

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Return the stage's outputs."""
        if any(isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(inputs)):
            return self.inner(inputs, training=training)
        if training and uses_custom_gradient(self):
            return custom_gradient(
                self,
                self._run,
                self._run,
                (inputs,),
                {},
                again=self.recomputed,
                device=self.device,
            )
        with tf.device(self.device):
            return self.inner(inputs, training=training)

    def _run(self, inputs: Tensors) -> Tensors:
        return self.inner(inputs, training=True)

    def compute_output_spec(self, *args: object, **kwargs: object) -> Tensors:
        """Return the output spec of the inner layer."""
        return self.inner.compute_output_spec(*args, **kwargs)

    def compute_mask(self, inputs: Tensors, previous_mask: Tensors) -> None:
        """Return None, because the inner layer has already set masks on its outputs."""


def _replica() -> int:
    """Return the number of the replica whose graph is being built; 0 in cross-replica context."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 0
    return int(tf.get_static_value(context.replica_id_in_sync_group))
