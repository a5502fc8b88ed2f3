"""Options for where a training runs: devices, processes, threads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from trainer_module.options.settings import COUNT, RUNTIME_ONLY, Settings

_SEVERAL_WORKERS = ("auto", "multi_worker", "parameter_server")


class ClusterOptions(Settings):
    """Where a training runs. These settings do not change the result, except for rounding."""

    strategy: Annotated[str, RUNTIME_ONLY] = Field(
        default="auto",
        description=(
            "one_device, mirrored, multi_worker or parameter_server. auto: parameter_server or "
            "multi_worker if TF_CONFIG has servers or several workers; otherwise mirrored for "
            "several GPUs or logical devices, and one_device for one."
        ),
    )
    workers: Annotated[int | None, COUNT, RUNTIME_ONLY] = Field(
        default=None,
        description=(
            "Number of processes that train together. They are started on this machine unless "
            "TF_CONFIG lists them. null: the processes of TF_CONFIG, or only this process."
        ),
    )
    start_timeout_seconds: Annotated[float, RUNTIME_ONLY] = Field(
        default=60.0, gt=0, description="Seconds to wait until all workers are connected."
    )
    worker_timeout_seconds: Annotated[float, RUNTIME_ONLY] = Field(
        default=60.0,
        gt=0,
        description=(
            "Seconds without a sign of life from a worker, or in which its main thread keeps the "
            "others waiting, before all stop with an error (docs/distributed.md). The end of a "
            "worker's process is detected at once."
        ),
    )
    logical_devices: Annotated[int | None, COUNT, RUNTIME_ONLY] = Field(
        default=None,
        description=(
            "Number of logical CPU devices of each process, for mirrored and multi_worker; null: "
            "the configured ones, by default 1."
        ),
    )
    require_gpu: Annotated[bool | None, RUNTIME_ONLY] = Field(
        default=None,
        description=(
            "Whether to stop with an error if TensorFlow sees no GPU. null: false, but true in a "
            "compiled pipeline whose Trainer requests an NVIDIA accelerator. With parameter "
            "servers, only the workers need a GPU."
        ),
    )
    intra_op_threads: Annotated[int | None, COUNT, RUNTIME_ONLY] = Field(
        default=None,
        description=(
            "CPU threads per operation; null: TensorFlow's default, one per core. 1 is faster for "
            "small micro-batches on two cores (docs/benchmarks.md), but leaves cores idle for "
            "micro-batches above 64 MiB, which are computed one at a time."
        ),
    )

    @model_validator(mode="after")
    def _check_workers(self) -> ClusterOptions:
        if (self.workers or 1) > 1 and self.strategy not in _SEVERAL_WORKERS:
            raise ValueError(
                f"workers={self.workers} with strategy={self.strategy!r}: each would train a "
                'separate model; use strategy "multi_worker", or leave workers out'
            )
        return self
