"""Configure a process for training, before TensorFlow is first used in it."""

from __future__ import annotations

from typing import Protocol


class ProcessSettings(Protocol):
    """The settings of a `TrainerConfig` that TensorFlow reads once per process."""

    @property
    def micro_batch_size(self) -> int | str | None:
        """Rows, "auto" or None."""
        ...

    @property
    def intra_op_threads(self) -> int | None:
        """Threads of one operation; None: TensorFlow's choice."""
        ...

    @property
    def logical_devices(self) -> int | None:
        """Logical CPU devices; None: the existing ones."""
        ...


def prepare_process(config: ProcessSettings) -> None:
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
