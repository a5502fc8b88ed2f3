"""Options for where a training runs, its length and the grouping of its steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.common.tensors import Json
from trainer_module.options.batch_sizes import check_batch_sizes
from trainer_module.options.settings import COUNT, RUN_LENGTH, RUNTIME_ONLY, Settings


class RunLength(Settings):
    """Length of a training, and number of steps per call of the graph."""

    epochs: Annotated[int | None, COUNT, RUN_LENGTH] = Field(
        default=None,
        description=(
            "Passes over the training rows. Give epochs or steps; null and no steps: 10 epochs."
        ),
    )
    steps: Annotated[int | None, COUNT, RUN_LENGTH] = Field(
        default=None, description="Optimizer steps. Give epochs or steps."
    )
    steps_per_loop: Annotated[int | Literal["auto"], COUNT, RUNTIME_ONLY] = Field(
        default="auto",
        description=(
            "Optimizer steps per call of the graph; auto: as many as take about 0.5 seconds."
        ),
    )

    @model_validator(mode="after")
    def _check_one_length(self) -> RunLength:
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs={self.epochs} and steps={self.steps}: give one of them")
        return self


class LoopOptions(RunLength):
    """The options of a `TrainingLoop`; see there."""

    batch_size: int | dict[int, int] | None = None
    shuffle: bool | None = None
    seed: int | None = None
    steps_per_epoch: Annotated[int | None, COUNT] = None

    @field_validator("shuffle", "seed", mode="before")
    @classmethod
    def _from_numpy(cls, value: Json) -> Json:
        return value.item() if hasattr(value, "item") else value

    @field_validator("batch_size", mode="before")
    @classmethod
    def _batch_sizes(cls, value: Json) -> Json:
        return None if value is None else check_batch_sizes(value)

    @model_validator(mode="after")
    def _check_passes(self) -> LoopOptions:
        if isinstance(self.batch_size, dict) and self.steps_per_epoch is not None:
            raise ValueError(
                f"steps_per_epoch={self.steps_per_epoch} with a schedule of batch sizes: an epoch "
                "is one pass over the rows then; leave out steps_per_epoch"
            )
        return self

    @model_validator(mode="after")
    def _check_a_length(self) -> LoopOptions:
        if self.epochs is None and self.steps is None:
            raise ValueError("epochs and steps are both None: give one of them")
        return self


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
            "Seconds without a sign of life from a worker's process before all stop with an error "
            "(docs/distributed.md). The end of the process is detected at once; a program that "
            "hangs while its process lives is not."
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
