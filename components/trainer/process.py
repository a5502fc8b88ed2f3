"""What the Trainer needs of a process that other nodes run in as well."""

from __future__ import annotations

from trainer_module.config import TrainerConfig


def prepare_process(config: TrainerConfig) -> None:
    """Configures TensorFlow's devices and threads for training, before any node uses TensorFlow.

    TensorFlow fixes its logical devices and threads, and takes the GPUs' memory, when it is first
    used; under LocalDagRunner that is in Transform, long before the Trainer runs in the same
    process.

    Args:
        config: how the process's Trainer will train.

    Raises:
        ValueError: TensorFlow already runs in this process, with fewer devices or other threads, or
            holds all memory of the GPUs.
    """
    if config.micro_batch_size == "auto":
        from trainer_module.strategies import grow_gpu_memory

        grow_gpu_memory()
    if config.intra_op_threads is not None:
        from trainer_module.strategies import configure_intra_op_threads

        configure_intra_op_threads(config.intra_op_threads)
    if config.logical_devices is not None:
        from trainer_module.strategies import configure_logical_devices

        configure_logical_devices(config.logical_devices)
