"""What a training run may say about itself: the YAML's `training:` section."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from trainer_module.common.keras_names import Kind, check_keras_name
from trainer_module.devices.memory_budget import parse_memory_budget

DEFAULT_EPOCHS = 10
DEFAULT_METRICS = {
    "binary": ("auc", "accuracy"),
    "multiclass": ("accuracy",),
    "regression": ("mean_absolute_error",),
}


@dataclass(frozen=True)
class Role:
    """What a setting of `TrainerConfig` is to a run, beside its type; a mark at the field.

    Attributes:
        decides_end: Whether another value makes another run. A run's length does not: it may grow.
        untunable: Why a search cannot vary it; None where it can.
    """

    decides_end: bool = True
    untunable: str | None = None


SEVERAL_WORKERS = ("auto", "multi_worker", "parameter_server")
HOW = Role(decides_end=False, untunable="it does not change what is learned")
LENGTH = Role(decides_end=False, untunable="give a trial's length as epochs or steps beside search")
JUDGED_BY = Role(untunable="trials that differ in it cannot be compared")


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(_Frozen):
    """The default model: embeddings for ids, then dense layers."""

    hidden_units: tuple[int, ...] = Field(
        default=(64, 32), description="Units of each dense layer."
    )
    embedding_size: int | Literal["auto"] = Field(
        default="auto",
        description='Numbers per id; "auto" grows with the largest vocabulary, 2 to 32.',
    )
    dropout: float = Field(
        default=0.0, description="Share of units left out in training, 0 to below 1."
    )
    activation: str = Field(
        default="relu", description="Keras name of the dense layers' activation."
    )
    knots: int = Field(
        default=0,
        ge=0,
        description=(
            "Knots of a piecewise linear function of each scaled number, learned beside the number "
            "itself: about 8 where the label bends with it; 0 for none."
        ),
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Whatever your own model_fn reads from context.config.model.options.",
    )

    @field_validator("hidden_units")
    @classmethod
    def _units(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        for units in value:
            if units < 1:
                raise ValueError("each layer needs at least 1 unit; use [] for a linear model")
        return value

    @field_validator("dropout")
    @classmethod
    def _dropout(cls, value: float) -> float:
        if not 0 <= value < 1:
            raise ValueError("use a share from 0 to below 1")
        return value

    @field_validator("embedding_size")
    @classmethod
    def _embedding(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError('use at least 1, or "auto"')
        return value


class ScheduleConfig(_Frozen):
    """A learning rate that changes with the optimizer's steps."""

    name: Literal["cosine", "linear", "exponential"]
    warmup_steps: int = Field(default=0, ge=0, description="Steps of linear rise from 0.")
    decay_steps: int | None = Field(
        default=None,
        ge=1,
        description="Steps of decay after the warm-up; null: to the end of training.",
    )
    final_fraction: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Learning rate at the end, as a share of learning_rate.",
    )

    @model_validator(mode="after")
    def _exponential_end(self) -> ScheduleConfig:
        if self.name == "exponential" and self.final_fraction == 0:
            raise ValueError("an exponential schedule needs final_fraction above 0, such as 0.1")
        return self


class OptimizerConfig(_Frozen):
    """A Keras optimizer by name."""

    name: str = Field(default="adamw", description="Keras name: adamw, adam, sgd, lion, ...")
    learning_rate: float | Literal["auto"] = Field(
        default=1e-3,
        description=(
            "Above 0; of a schedule the peak. auto: a tenth of the rate at which the loss of 200 "
            "windows of growing rate is lowest, found before the training."
        ),
    )
    weight_decay: float | None = Field(
        default=None, ge=0, description="null: the optimizer's own default."
    )
    schedule: ScheduleConfig | None = None
    options: dict[str, Any] = Field(
        default_factory=dict, description="Further arguments of the Keras optimizer."
    )

    @field_validator("learning_rate")
    @classmethod
    def _rate(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and not 0 < value < float("inf"):
            raise ValueError('use a number above 0, or "auto"')
        return value


class EarlyStoppingConfig(_Frozen):
    """Stop when an evaluation metric has not improved for some epochs."""

    monitor: str = Field(
        default="loss", description="loss, or one of `metrics`; on the eval split."
    )
    patience_epochs: int = Field(default=3, ge=1)
    mode: Literal["auto", "min", "max"] = Field(
        default="auto",
        description="min: smaller is better. auto: what the name of the metric says.",
    )
    min_delta: float = Field(default=0.0, ge=0, description="A smaller change is no improvement.")
    restore_best: bool = Field(default=True, description="Export the weights of the best epoch.")


class TrainerConfig(_Frozen):
    """Everything that `run_fn` takes from `custom_config["trainer"]`.

    Batch sizes count rows, steps count optimizer steps; nothing is per replica but
    `micro_batch_size`.
    """

    model_fn: str | None = Field(
        default=None,
        description="Dotted path of (ModelContext) -> keras.Model; null: the default model.",
    )
    model: ModelConfig = ModelConfig()
    label: Annotated[str | None, JUDGED_BY] = Field(
        default=None, description="Transformed feature; default from the layout."
    )
    weight: Annotated[str | None, JUDGED_BY] = Field(
        default=None, description="Transformed feature with weights per row."
    )
    label_scale: Annotated[Literal["auto", "z_score", "log", "none"], JUDGED_BY] = Field(
        default="auto",
        description=(
            "Scale that a regression is trained on; metrics and the exported model keep the "
            "label's own unit, the loss does not. auto: z_score, or log where the label is skewed; "
            "none for a model_fn of your own, and for losses that are not of differences."
        ),
    )
    loss: str | None = Field(
        default=None, description="Keras name or dotted path; default from the kind of label."
    )
    metrics: Annotated[tuple[str, ...] | None, JUDGED_BY] = Field(
        default=None,
        description="Keras names or dotted paths; default from the kind of label.",
    )
    class_weight: Literal["balanced"] | dict[int | str, float] | None = Field(
        default=None,
        description=(
            "Weights in training, not in evaluation, of the rows of each class, by number or name, "
            "times `weight`; 1 for others. balanced: all classes weigh the same in all."
        ),
    )
    optimizer: OptimizerConfig = Field(
        default=OptimizerConfig(), description="A Keras name, or that with its options."
    )

    strategy: Annotated[str, HOW] = Field(
        default="auto",
        description="one_device, mirrored, multi_worker, parameter_server or tpu; auto: what "
        "TF_CONFIG names (servers, else several workers), mirrored where there are several GPUs or "
        "logical devices.",
    )
    workers: Annotated[int | None, HOW] = Field(
        default=None,
        description="Processes that train together, of this machine where TF_CONFIG does not name "
        "them; null: this one, or those of TF_CONFIG.",
    )
    communication: Annotated[Literal["auto", "ring", "nccl"], HOW] = Field(
        default="auto",
        description="How workers add up: ring, or nccl between GPUs; auto: ring on CPUs, "
        "TensorFlow's choice on GPUs.",
    )
    start_timeout_seconds: Annotated[float, HOW] = Field(
        default=60.0, gt=0, description="How long to wait until all workers are there."
    )
    worker_timeout_seconds: Annotated[float, HOW] = Field(
        default=60.0,
        gt=0,
        description="How long a worker may be silent before the others end with an error. One "
        "whose process ends is noticed at once.",
    )
    logical_devices: Annotated[int | None, HOW] = Field(
        default=None,
        description="Number of logical CPU devices of each process, for mirrored and multi_worker; "
        "null: those there are.",
    )
    require_gpu: Annotated[bool | None, HOW] = Field(
        default=None,
        description="End the training with an error if TensorFlow sees no GPU; null: no, and with "
        "`compile` yes if the Trainer asks for an NVIDIA accelerator. Of a training with parameter "
        "servers, the workers need one.",
    )
    intra_op_threads: Annotated[int | None, HOW] = Field(
        default=None,
        description=(
            "CPU threads of one operation; null: TensorFlow's choice, one per core. 1 takes less "
            "time for small micro-batches on two cores (docs/benchmarks.md), and leaves cores "
            "idle for ones above 64 MiB, which pass one by one."
        ),
    )
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
    memory_budget: Annotated[int | str, HOW] = Field(
        default="80%",
        description=(
            'For "auto": bytes, "4GiB", or a share of the memory that is free, "80%". '
            "Of each GPU; without one, of the machine, for all its CPU devices together."
        ),
    )
    memory_cache_dir: Annotated[str | None, HOW] = Field(
        default=None,
        description='For "auto": keeps what was measured; null: the user\'s cache folder.',
    )
    epochs: Annotated[int | None, LENGTH] = Field(
        default=None, description="Passes over the data; or give steps."
    )
    steps: Annotated[int | None, LENGTH] = Field(
        default=None, description="Optimizer steps; or give epochs."
    )
    steps_per_loop: Annotated[int | Literal["auto"], HOW] = Field(
        default="auto",
        description='Steps per call of the graph; "auto": about half a second\'s worth.',
    )
    clip_norm: float | None = Field(
        default=None, description="Largest global norm of the gradient."
    )
    ema_momentum: float | None = Field(
        default=None,
        description="Evaluate and export an exponential moving average of the weights.",
    )
    non_finite: Literal["raise", "skip"] = "raise"
    max_consecutive_skips: int = Field(
        default=100, description='For non_finite="skip": windows in a row; the next one stops.'
    )
    early_stopping: EarlyStoppingConfig | None = None
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    jit_compile: bool = Field(default=False, description="Compile micro-batches by XLA.")
    recompute: Annotated[tuple[str, ...], HOW] = Field(
        default=(),
        description=(
            "Names of layers whose activations are made anew for the gradient, not kept: less "
            "memory for one more forward pass through them."
        ),
    )
    shuffle_buffer_rows: int = Field(
        default=65_536,
        description="Rows shuffled among each other, 0 for none; held in memory, up to four times "
        "over where they are 128 MB or less.",
    )
    seed: int = Field(default=0, ge=0, description="Of initial weights, shuffling and dropout.")
    checkpoint_dir: Annotated[str | None, HOW] = Field(
        default=None,
        description="Folder that survives a retry of the node; null: under TFX's model_run folder.",
    )
    checkpoint_every_steps: Annotated[int | None, HOW] = Field(
        default=None,
        description="Beside those at the ends of epochs, which take about 1 % of the time; null: "
        "only those.",
    )
    checkpoint_every_minutes: Annotated[float | None, HOW] = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Beside those at the ends of epochs: what a killed node loses at most. null: "
        "only those. Where it is left out, a pipeline compiled for Kubeflow or Vertex has 5.",
    )
    keep_checkpoints: Annotated[int, HOW] = Field(
        default=2, description="How many of the latest are kept."
    )
    tensorboard: Annotated[bool, HOW] = Field(
        default=True, description="Write scalars to the model_run folder."
    )

    @field_validator(
        "global_batch_size",
        "micro_batch_size",
        "epochs",
        "steps",
        "steps_per_loop",
        "workers",
        "logical_devices",
        "intra_op_threads",
        "checkpoint_every_steps",
        "keep_checkpoints",
        "max_consecutive_skips",
    )
    @classmethod
    def _at_least_one(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, int) and value < 1:
            raise ValueError("use a whole number of at least 1")
        return value

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_of_the_one_label(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            raise ValueError(
                f"settings by output ({', '.join(map(str, value))}) have no place here: a pipeline "
                "has one label, and so one list of metrics; for a model of several outputs write a "
                "program with TrainingLoop and Evaluation(metrics={output: [metric, ...]})"
            )
        return value

    @field_validator("class_weight", mode="before")
    @classmethod
    def _class_numbers(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "balanced":
            raise ValueError('use "balanced", or weights by class: {0: 1.0, 1: 9.0}')
        if not isinstance(value, Mapping):
            return value
        # The keys of JSON are texts.
        return {
            int(key) if isinstance(key, str) and key.lstrip("-").isdecimal() else key: weight
            for key, weight in value.items()
        }

    @field_validator("class_weight")
    @classmethod
    def _class_weights(cls, value: Any) -> Any:
        for number, weight in value.items() if isinstance(value, Mapping) else ():
            named = isinstance(number, str)
            if (not named and number < 0) or not 0 <= weight < float("inf"):
                raise ValueError(
                    f"class {number} has weight {weight:g}: use classes 0, 1, ... or their names, "
                    "and finite weights of at least 0"
                )
        return value

    @field_validator("optimizer", mode="before")
    @classmethod
    def _optimizer_by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("shuffle_buffer_rows")
    @classmethod
    def _at_least_zero(cls, value: int) -> int:
        if value < 0:
            raise ValueError("use 0 (no shuffling) or more")
        return value

    @field_validator("memory_budget", mode="before")
    @classmethod
    def _budget(cls, value: Any) -> Any:
        parse_memory_budget(value)
        return value

    @field_validator("clip_norm")
    @classmethod
    def _clip(cls, value: float | None) -> float | None:
        if value is not None and not value > 0:
            raise ValueError("use a number above 0, or null for no clipping")
        return value

    @field_validator("ema_momentum")
    @classmethod
    def _momentum(cls, value: float | None) -> float | None:
        if value is not None and not 0 <= value < 1:
            raise ValueError("use a number from 0 to below 1, such as 0.99, or null")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> TrainerConfig:
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs={self.epochs} and steps={self.steps}: give one of them")
        if (self.workers or 1) > 1 and self.strategy not in SEVERAL_WORKERS:
            raise ValueError(
                f"workers={self.workers} with strategy={self.strategy!r}: each would train a model "
                'of its own; use strategy "multi_worker", or leave workers out'
            )
        if self.model.options and self.model_fn is None:
            raise ValueError(
                f"model.options={self.model.options} are read by no one: the default model has "
                "none; give model_fn, or leave them out"
            )
        micro = self.micro_batch_size
        if isinstance(micro, int) and micro > self.global_batch_size:
            raise ValueError(
                f"micro_batch_size={micro} exceeds global_batch_size={self.global_batch_size}: a "
                f"window holds at least one micro-batch; use {self.global_batch_size} or less, or "
                '"auto"'
            )
        return self

    @model_validator(mode="after")
    def _names_of_keras(self) -> TrainerConfig:
        """Without Keras itself, which takes seconds to import: see `model.plan.resolve`."""
        names: list[tuple[str, Kind, str | None]] = [
            ("optimizer.name", "optimizer", self.optimizer.name),
            ("loss", "loss", self.loss),
            *(("metrics", "metric", name) for name in self.metrics or ()),
        ]
        if self.model_fn is None:
            names.append(("model.activation", "activation", self.model.activation))
        for field, kind, name in names:
            if name is not None:
                check_keras_name(kind, name, field=field)
        return self

    @classmethod
    def parse(cls, values: Any, *, section: str = "trainer") -> TrainerConfig:
        """Returns the configuration, or one readable error.

        Args:
            values: What `custom_config["trainer"]` holds: a dict of JSON values, or None.
            section: How the fields are called in messages.

        Raises:
            ValueError: Every wrong field with its value and what would be right.
        """
        return parse_section(cls, {} if values is None else values, section=section)


def roles() -> dict[str, Role]:
    """Returns what each setting of `TrainerConfig` is to a run."""
    return {
        name: next((mark for mark in field.metadata if isinstance(mark, Role)), Role())
        for name, field in TrainerConfig.model_fields.items()
    }


def trainer_settings(custom_config: Mapping[str, Any] | None) -> Any:
    """Returns `custom_config["trainer"]`, None where there is none.

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


Section = TypeVar("Section", bound=BaseModel)


def parse_section(model: type[Section], values: Any, *, section: str) -> Section:
    """Returns a configuration, or one readable error.

    Args:
        model: What it is.
        values: Its fields as JSON values.
        section: How the fields are called in messages.

    Raises:
        ValueError: Every wrong field with its value and what would be right.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_describe(e, section, model) for e in error.errors()]
        raise ValueError("\n".join(lines)) from None


_OF_AUTO = ("int", "float", "literal['auto']")  # places of a union in pydantic's messages


def _describe(error: Any, section: str, model: type[BaseModel]) -> str:
    location = [str(part) for part in error["loc"] if part not in _OF_AUTO]
    field = ".".join([section, *location])
    message = error["msg"].removeprefix("Value error, ")
    if not location:
        return f"{field}.{message}"
    if error["type"] == "extra_forbidden":
        from trainer_module.common.names import nearest

        fields: dict[str, Any] = dict(model.model_fields)
        for part in location[:-1]:
            if part in fields:
                declared = fields[part].annotation
                models = [declared, *getattr(declared, "__args__", ())]
                fields = next((m.model_fields for m in models if hasattr(m, "model_fields")), {})
        return f"{field} is not a setting: {nearest(location[-1], fields)}"
    if error["type"] == "missing" or isinstance(error["input"], (dict, BaseModel)):
        return f"{field}: {message}" if message.endswith("?") else f"{field}: {message}."
    return f"{field}={error['input']!r}: {message}."
