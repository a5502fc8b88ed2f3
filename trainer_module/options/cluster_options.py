"""Options for where a training runs: devices, processes, threads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.options.settings import RUNTIME_ONLY, Settings, at_least_one

SEVERAL_WORKERS = ("auto", "multi_worker", "parameter_server")


class ClusterOptions(Settings):
    """Where a training runs; none of it changes the result, rounding aside."""

    strategy: Annotated[str, RUNTIME_ONLY] = Field(
        default="auto",
        description="one_device, mirrored, multi_worker, parameter_server or tpu; auto: what "
        "TF_CONFIG names (servers, else several workers), mirrored where there are several GPUs or "
        "logical devices.",
    )
    workers: Annotated[int | None, RUNTIME_ONLY] = Field(
        default=None,
        description="Processes that train together, of this machine where TF_CONFIG does not name "
        "them; null: this one, or those of TF_CONFIG.",
    )
    communication: Annotated[Literal["auto", "ring", "nccl"], RUNTIME_ONLY] = Field(
        default="auto",
        description="How workers add up: ring, or nccl between GPUs; auto: ring on CPUs, "
        "TensorFlow's choice on GPUs.",
    )
    start_timeout_seconds: Annotated[float, RUNTIME_ONLY] = Field(
        default=60.0, gt=0, description="How long to wait until all workers are there."
    )
    worker_timeout_seconds: Annotated[float, RUNTIME_ONLY] = Field(
        default=60.0,
        gt=0,
        description="How long a worker may be silent before the others end with an error. One "
        "whose process ends is noticed at once.",
    )
    logical_devices: Annotated[int | None, RUNTIME_ONLY] = Field(
        default=None,
        description="Number of logical CPU devices of each process, for mirrored and multi_worker; "
        "null: those there are.",
    )
    require_gpu: Annotated[bool | None, RUNTIME_ONLY] = Field(
        default=None,
        description="End the training with an error if TensorFlow sees no GPU; null: no, and with "
        "`compile` yes if the Trainer asks for an NVIDIA accelerator. Of a training with parameter "
        "servers, the workers need one.",
    )
    intra_op_threads: Annotated[int | None, RUNTIME_ONLY] = Field(
        default=None,
        description=(
            "CPU threads of one operation; null: TensorFlow's choice, one per core. 1 takes less "
            "time for small micro-batches on two cores (docs/benchmarks.md), and leaves cores "
            "idle for ones above 64 MiB, which pass one by one."
        ),
    )

    @field_validator("workers", "logical_devices", "intra_op_threads", mode="before")
    @classmethod
    def _check_cluster_counts(cls, value: object) -> object:
        return at_least_one(value)

    @model_validator(mode="after")
    def _check_workers(self) -> ClusterOptions:
        if (self.workers or 1) > 1 and self.strategy not in SEVERAL_WORKERS:
            raise ValueError(
                f"workers={self.workers} with strategy={self.strategy!r}: each would train a "
                'separate model; use strategy "multi_worker", or leave workers out'
            )
        return self
