"""The configuration of a training: the YAML's `training:` section."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.common.tensors import Json
from trainer_module.devices.memory_budget import parse_memory_budget
from trainer_module.options.batch_sizes import BATCH_SIZES, BatchSizes
from trainer_module.options.run_options import ClusterOptions, RunLength
from trainer_module.options.settings import COUNT, RUNTIME_ONLY, parse_section
from trainer_module.options.step_options import UpdateOptions
from trainer_module.options.task_options import EarlyStoppingConfig, TaskOptions

DEFAULT_EPOCHS = 10
DEFAULT_METRICS = {
    "binary": ("auc", "accuracy"),
    "multiclass": ("accuracy",),
    "regression": ("mean_absolute_error",),
}


class TrainerConfig(RunLength, UpdateOptions, ClusterOptions, TaskOptions):
    """The settings that `run_fn` reads from `custom_config["trainer"]`.

    Batch sizes are numbers of rows over all replicas, except `micro_batch_size`, which is per
    replica. Steps are optimizer steps.
    """

    global_batch_size: Annotated[int | dict[int, int], BATCH_SIZES] = Field(
        default=256,
        description=(
            "Rows of one optimizer step, over all replicas; or sizes by the step from which they "
            "hold: {0: 256, 1000: 1024}."
        ),
    )
    scale_learning_rate: Literal["none", "linear", "sqrt"] = Field(
        default="none",
        description=(
            "How the learning rate follows sizes by step: linear multiplies it by size / size at "
            "step 0, sqrt by the square root of that."
        ),
    )
    micro_batch_size: Annotated[int | Literal["auto"] | None, COUNT] = Field(
        default=None,
        description=(
            "Rows of a forward and backward pass on one replica; small micro-batches are computed "
            "together up to 128 MiB (256 MiB on a GPU). null: global_batch_size / replicas (of "
            "sizes by step, the largest). auto: the first of this, its half, its quarter, ... "
            "whose step fits memory_budget, measured in child processes."
        ),
    )
    memory_budget: Annotated[int | str, RUNTIME_ONLY] = Field(
        default="80%",
        description=(
            "Memory for micro_batch_size: auto, as bytes, a size (4GiB) or a share of the free "
            "memory (80%). It applies to each GPU; without a GPU, to all CPU devices of the "
            "machine together."
        ),
    )
    early_stopping: EarlyStoppingConfig | None = Field(
        default=None, description="When to stop early; null: train to the end."
    )
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = Field(
        default="float32", description="Keras dtype policy of the model's layers."
    )
    recompute: Annotated[tuple[str, ...], RUNTIME_ONLY] = Field(
        default=(),
        description=(
            "Names of layers whose activations are recomputed in the backward pass instead of "
            "stored. It saves memory and costs one more forward pass of these layers."
        ),
    )
    shuffle_buffer_rows: int = Field(
        default=65_536,
        description=(
            "Rows of the shuffle buffer, which is held in memory (up to four copies if they take "
            "128 MB or less); 0: no shuffling."
        ),
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of initial weights, shuffling and dropout."
    )
    checkpoint_dir: Annotated[str | None, RUNTIME_ONLY] = Field(
        default=None,
        description=(
            "Parent folder of the checkpoints; it must survive a retry of the node. null: in "
            "TFX's model_run folder."
        ),
    )
    checkpoint_every_steps: Annotated[int | None, COUNT, RUNTIME_ONLY] = Field(
        default=None,
        description=(
            "Optimizer steps between checkpoints, in addition to those at the ends of epochs (at "
            "most 1% of the training time). null: only at the ends of epochs."
        ),
    )
    checkpoint_every_minutes: Annotated[float | None, RUNTIME_ONLY] = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description=(
            "Longest time between checkpoints in minutes, which a killed node loses at most. "
            "null: only at the ends of epochs. If it is not set, a pipeline compiled for Kubeflow "
            "or Vertex uses 5."
        ),
    )
    tensorboard: Annotated[bool, RUNTIME_ONLY] = Field(
        default=True, description="Whether to write TensorBoard scalars to the model_run folder."
    )

    @field_validator("shuffle_buffer_rows")
    @classmethod
    def _at_least_zero(cls, value: int) -> int:
        if value < 0:
            raise ValueError("use 0 (no shuffling) or more")
        return value

    @field_validator("memory_budget", mode="before")
    @classmethod
    def _budget(cls, value: object) -> object:
        parse_memory_budget(value)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> TrainerConfig:
        micro, smallest = self.micro_batch_size, self.batch_sizes.smallest
        if isinstance(micro, int) and micro > smallest:
            raise ValueError(
                f"micro_batch_size={micro} exceeds global_batch_size={self.global_batch_size}: a "
                f"window holds at least one micro-batch; use {smallest} or less, or "
                '"auto"'
            )
        if self.scale_learning_rate != "none" and self.batch_sizes.is_single:
            raise ValueError(
                f"scale_learning_rate={self.scale_learning_rate!r} has no effect: "
                f"global_batch_size={self.global_batch_size} does not change; give sizes by step, "
                "such as {0: 256, 1000: 1024}, or leave it out"
            )
        return self

    @property
    def batch_sizes(self) -> BatchSizes:
        """The rows of the global batch of each step."""
        return BatchSizes.of(self.global_batch_size)

    @classmethod
    def parse(cls, values: Json, *, section: str = "trainer") -> TrainerConfig:
        """Return the configuration from JSON values.

        Args:
            values: The content of `custom_config["trainer"]`: a dict of JSON values, or None.
            section: Name of the configuration in messages.

        Raises:
            ValueError: The message lists every wrong field with its value and a suggestion.
        """
        return parse_section(cls, {} if values is None else values, section=section)


def trainer_settings(custom_config: Mapping[str, Json] | None) -> Json:
    """Return `custom_config["trainer"]`, or None without it.

    Raises:
        ValueError: Settings are next to the key instead of under it, or the key is misspelt.
    """
    custom = custom_config or {}
    if "trainer" in custom:
        return custom["trainer"]
    misplaced = [key for key in custom if key in TrainerConfig.model_fields]
    misspelt = difflib.get_close_matches("trainer", list(custom), n=1, cutoff=0.7)
    if misplaced or misspelt:
        found = ", ".join(map(repr, misplaced or misspelt))
        raise ValueError(
            f'custom_config has {found} and no "trainer": put the settings of the training under '
            'that key, custom_config={"trainer": {"epochs": 3, ...}}.'
        )
    return None
