"""Prepare a process for training, before TensorFlow is first used in it."""

from __future__ import annotations

import os
from typing import Any

from absl import logging

from trainer_module.devices.cluster import Cluster

_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# Variable that `replay` sets: its machine need not have the GPU of the platform.
REPLAY = "TFX_LARGEBATCH_REPLAY"


def prepare_process(config: Any) -> None:
    """Configure TensorFlow's devices and threads for a training in this process.

    At its first use, TensorFlow fixes its logical devices and threads and allocates the GPUs'
    memory. `run_fn` and `tuner_fn` call this function. If something else in the process uses
    TensorFlow before them, as Transform does under LocalDagRunner, call it before that.

    Args:
        config: The settings of the training: a `TrainerConfig`.

    Raises:
        ValueError: TensorFlow already runs in this process with fewer devices or other threads, or
            holds all GPU memory.
    """
    measures_memory = config.micro_batch_size == "auto"
    threads, devices = config.intra_op_threads, config.logical_devices
    if not measures_memory and threads is None and devices is None:
        return  # without TensorFlow, which takes seconds to import
    from trainer_module.devices import strategies

    if measures_memory:
        strategies.grow_gpu_memory()
    if threads is not None:
        strategies.configure_intra_op_threads(threads)
    if devices is not None:
        strategies.configure_logical_devices(devices)


class GpuMissing(RuntimeError):
    """A GPU is required, but TensorFlow sees none."""


def check_gpu_visible(cluster: Cluster | None = None) -> None:
    """Check that TensorFlow sees a GPU; call it before anything else uses TensorFlow.

    Raises:
        GpuMissing: TensorFlow sees no GPU. The message says where to look.
    """
    if cluster is not None and cluster.has_parameter_servers and cluster.role != "worker":
        return
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return
    if os.environ.get(REPLAY):
        logging.warning("This machine has no GPU, so this replay trains on the CPU.")
        return
    raise GpuMissing(
        f"require_gpu=True, but TensorFlow {tf.__version__} sees no GPU "
        f"({_VISIBLE_DEVICES}={os.environ.get(_VISIBLE_DEVICES)!r}). Look at `nvidia-smi`, at "
        "TensorFlow's warnings above, whether the node asks for the GPU, and whether CUDA is "
        "installed (`python -m pipeline image build --cuda`, or `tensorflow[and-cuda]`). To train "
        "on the CPU, set require_gpu to false, and request no accelerator for the Trainer."
    )
