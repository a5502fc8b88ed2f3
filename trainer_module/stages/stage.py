"""One stage of a model: a part of it that runs on a device of its own."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.stages.custom_gradient import custom_gradient, uses_custom_gradient


class Stage(keras.layers.Layer):
    """A layer or model that computes, forward and backward, where its variables are.

    Attributes:
        inner: It.
        devices: One device for each replica.
        recomputed: Whether its activations are made anew in the backward pass.
    """

    def __init__(
        self, inner: keras.layers.Layer, devices: tuple[str, ...], *, recomputed: bool = False
    ) -> None:
        """Takes a built layer."""
        # What reaches it is what the part before has made: nothing is cast here.
        super().__init__(name=f"stage_of_{inner.name}", dtype=inner.dtype_policy, autocast=False)
        self.inner = inner
        self.devices = devices
        self.recomputed = recomputed
        self.supports_masking = True
        self.built = True

    @property
    def device(self) -> str:
        """Where it runs on the replica whose graph is being made."""
        return self.devices[_replica()]

    def call(self, inputs: Tensors, training: bool | None = None) -> Any:
        """Returns the stage's outputs."""
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

    def _run(self, inputs: Tensors) -> Any:
        return self.inner(inputs, training=True)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the inner layer's."""
        return self.inner.compute_output_spec(*args, **kwargs)

    def compute_mask(self, inputs: Tensors, previous_mask: Any) -> Any:
        """Returns None: the inner layer has put its masks on its outputs."""
        return None


def _replica() -> int:
    """Returns which replica the graph under way is that of; 0 outside of all."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 0
    return int(tf.get_static_value(context.replica_id_in_sync_group))
