"""What a training run may say about itself: the YAML's `training:` section."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.common.json_values import Json
from trainer_module.devices.memory_budget import parse_memory_budget
from trainer_module.options.cluster_options import ClusterOptions
from trainer_module.options.loop_options import RunLength
from trainer_module.options.model_config import EarlyStoppingConfig
from trainer_module.options.parse import parse_section
from trainer_module.options.settings import RUNTIME_ONLY, at_least_one
from trainer_module.options.step_options import UpdateOptions
from trainer_module.options.task_options import TaskOptions

DEFAULT_EPOCHS = 10
DEFAULT_METRICS = {
    "binary": ("auc", "accuracy"),
    "multiclass": ("accuracy",),
    "regression": ("mean_absolute_error",),
}


class TrainerConfig(RunLength, UpdateOptions, ClusterOptions, TaskOptions):
    """Everything that `run_fn` takes from `custom_config["trainer"]`.

    Batch sizes count rows, steps count optimizer steps; nothing is per replica but
    `micro_batch_size`.
    """

    global_batch_size: int = Field(
        default=256, description="Rows of one optimizer step, all replicas."
    )
    micro_batch_size: int | Literal["auto"] | None = Field(
        default=None,
        description=(
            "Rows in memory at a time per replica (more while they hold less than 128 MiB, on a "
            "GPU 256); null: global batch / replicas. "
            '"auto": the most whose step fits memory_budget, measured in child processes.'
        ),
    )
    memory_budget: Annotated[int | str, RUNTIME_ONLY] = Field(
        default="80%",
        description=(
            'For "auto": bytes, "4GiB", or a share of the memory that is free, "80%". '
            "Of each GPU; without one, of the machine, for all its CPU devices together."
        ),
    )
    memory_cache_dir: Annotated[str | None, RUNTIME_ONLY] = Field(
        default=None,
        description='For "auto": keeps what was measured; null: the user\'s cache folder.',
    )
    early_stopping: EarlyStoppingConfig | None = None
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    recompute: Annotated[tuple[str, ...], RUNTIME_ONLY] = Field(
        default=(),
        description=(
            "Names of layers whose activations are recomputed for the gradient, not kept: less "
            "memory for one more forward pass through them."
        ),
    )
    shuffle_buffer_rows: int = Field(
        default=65_536,
        description="Rows shuffled among each other, 0 for none; held in memory, up to four times "
        "over where they are 128 MB or less.",
    )
    seed: int = Field(default=0, ge=0, description="Of initial weights, shuffling and dropout.")
    checkpoint_dir: Annotated[str | None, RUNTIME_ONLY] = Field(
        default=None,
        description="Folder that survives a retry of the node; null: under TFX's model_run folder.",
    )
    checkpoint_every_steps: Annotated[int | None, RUNTIME_ONLY] = Field(
        default=None,
        description="Beside those at the ends of epochs, which take about 1 % of the time; null: "
        "only those.",
    )
    checkpoint_every_minutes: Annotated[float | None, RUNTIME_ONLY] = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Beside those at the ends of epochs: what a killed node loses at most. null: "
        "only those. Where it is left out, a pipeline compiled for Kubeflow or Vertex has 5.",
    )
    keep_checkpoints: Annotated[int, RUNTIME_ONLY] = Field(
        default=2, description="How many of the latest are kept."
    )
    tensorboard: Annotated[bool, RUNTIME_ONLY] = Field(
        default=True, description="Write scalars to the model_run folder."
    )

    @field_validator(
        "global_batch_size",
        "micro_batch_size",
        "checkpoint_every_steps",
        "keep_checkpoints",
        mode="before",
    )
    @classmethod
    def _at_least_one(cls, value: object) -> object:
        return at_least_one(value)

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
        micro = self.micro_batch_size
        if isinstance(micro, int) and micro > self.global_batch_size:
            raise ValueError(
                f"micro_batch_size={micro} exceeds global_batch_size={self.global_batch_size}: a "
                f"window holds at least one micro-batch; use {self.global_batch_size} or less, or "
                '"auto"'
            )
        return self

    @classmethod
    def parse(cls, values: Json, *, section: str = "trainer") -> TrainerConfig:
        """Return the configuration, or one readable error.

        Args:
            values: What `custom_config["trainer"]` holds: a dict of JSON values, or None.
            section: How the fields are called in messages.

        Raises:
            ValueError: Every wrong field with its value and what would be right.
        """
        return parse_section(cls, {} if values is None else values, section=section)


def trainer_settings(custom_config: Mapping[str, Json] | None) -> Json:
    """Return `custom_config["trainer"]`, None where there is none.

    Raises:
        ValueError: Settings lie beside the key in place of under it.
    """
    custom = custom_config or {}
    if "trainer" in custom:
        return custom["trainer"]
    beside = [key for key in custom if key in TrainerConfig.model_fields]
    misspelt = difflib.get_close_matches("trainer", list(custom), n=1, cutoff=0.7)
    if beside or misspelt:
        found = ", ".join(map(repr, beside or misspelt))
        raise ValueError(
            f'custom_config has {found} and no "trainer": the settings of the training go under '
            'that key, custom_config={"trainer": {"epochs": 3, ...}}.'
        )
    return None
