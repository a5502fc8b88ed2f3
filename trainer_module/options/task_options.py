"""Options for what a training learns: label, model, loss, metrics, optimizer, early stopping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.common.keras_names import Kind, check_keras_name
from trainer_module.options.settings import SELECTION_CRITERION, Settings

# Settings of the default model that not every kind reads.
_READ_BY = {
    "filters": "conv",
    "blocks": "transformer",
    "width": "transformer",
    "heads": "transformer",
    "linear": "mlp",
}


class ModelConfig(Settings):
    """Settings of the default model: embeddings for ids, then hidden layers."""

    kind: Literal["mlp", "conv", "transformer"] = Field(
        default="mlp",
        description=(
            "Network in front of the hidden layers. conv: a residual network for each feature of "
            "pictures; transformer: attention over each feature of token ids; mlp: none."
        ),
    )
    filters: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(32, 64, 128),
        min_length=1,
        description="Filters of each residual block of kind conv, in order.",
    )
    blocks: int = Field(default=2, ge=1, description="Blocks of kind transformer, such as 2 to 6.")
    width: int = Field(default=64, ge=1, description="Size of a token's vector, of transformer.")
    heads: int = Field(
        default=4, ge=1, description="Attention heads of kind transformer; a divisor of width."
    )
    hidden_units: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(64, 32), description="Units of each hidden dense layer, in order; []: none."
    )
    embedding_size: int | Literal["auto"] = Field(
        default="auto",
        description=(
            "Size of an id's embedding; auto: 1.6 n^0.56 for the largest vocabulary n, from 2 to "
            "32."
        ),
    )
    dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of each hidden layer's units to drop in training, from 0 to below 1.",
    )
    activation: str = Field(
        default="relu", description="Keras name of the hidden layers' activation."
    )
    knots: int = Field(
        default=0,
        ge=0,
        description=(
            "Knots of a learned piecewise linear function of each scaled number, which the dense "
            "layers get in addition to the number. 0: none. Try 8 if the label is not linear in "
            "the numbers."
        ),
    )
    linear: bool = Field(
        default=False,
        description=(
            "Add a linear model of the same inputs to the output of the dense layers. Its initial "
            "weights are those of a ridge or logistic regression on the training rows, which also "
            "selects the label scale."
        ),
    )
    sparsity: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description=(
            "Share of the hidden layers' weights to remove, above 0 and below 1, the smallest "
            "ones, between the first tenth and the half of the training. null: none."
        ),
    )
    options: dict[str, object] = Field(
        default_factory=dict,
        description=(
            "Options for a custom model_fn, which reads them from context.config.model.options."
        ),
    )

    @field_validator("embedding_size")
    @classmethod
    def _embedding(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError('use at least 1, or "auto"')
        return value

    @model_validator(mode="after")
    def _fits_kind(self) -> ModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width={self.width} is not a multiple of heads={self.heads}")
        defaults = type(self).model_fields
        for name, kind in _READ_BY.items():
            if self.kind != kind and getattr(self, name) != defaults[name].default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} has no effect with kind={self.kind!r}: only "
                    f"kind={kind!r} reads it; leave it out"
                )
        return self

    @model_validator(mode="after")
    def _has_layers(self) -> ModelConfig:
        if self.sparsity is not None and not self.hidden_units:
            raise ValueError(
                f"sparsity={self.sparsity} has no effect with hidden_units=[]: add a hidden layer, "
                "such as [64, 32], or remove sparsity"
            )
        return self


class ScheduleConfig(Settings):
    """A learning-rate schedule over the optimizer steps."""

    name: Literal["cosine", "linear"] = Field(
        description="Shape of the decay, from the warm-up to 0 at the end of training."
    )
    warmup_steps: int = Field(
        default=0, ge=0, description="Optimizer steps of linear warm-up from 0 to learning_rate."
    )


class OptimizerConfig(Settings):
    """A Keras optimizer and its options."""

    name: str = Field(default="adamw", description="Keras name, such as adamw, adam, sgd or lion.")
    learning_rate: float = Field(
        default=1e-3,
        description="Learning rate, above 0; with a schedule, its peak.",
        json_schema_extra={"hint": "A schedule is set in optimizer.schedule"},
    )
    weight_decay: float | None = Field(
        default=None, ge=0, description="Weight decay; null: the optimizer's default."
    )
    schedule: ScheduleConfig | None = Field(
        default=None, description="Learning-rate schedule; null: a constant rate."
    )
    options: dict[str, object] = Field(
        default_factory=dict, description="Other arguments of the Keras optimizer by name."
    )

    @field_validator("learning_rate")
    @classmethod
    def _rate(cls, value: float) -> float:
        if not 0 < value < float("inf"):
            raise ValueError("use a number above 0")
        return value


class EarlyStoppingConfig(Settings):
    """Stop when a metric has not improved for some epochs, and keep the best weights."""

    monitor: str = Field(
        default="loss",
        description="The value to monitor on the eval split: loss or one of `metrics`.",
    )
    patience_epochs: int = Field(
        default=3, ge=1, description="Epochs without improvement before training stops."
    )
    mode: Literal["auto", "min", "max"] = Field(
        default="auto",
        description=(
            "min: smaller is better; max: larger is better; auto: derived from the metric's name."
        ),
    )


class TaskOptions(Settings):
    """Label, model, loss, metrics and optimizer of a training."""

    model_fn: str | None = Field(
        default=None,
        examples=["my_package.my_model.build"],
        description=(
            "Dotted path of a function (ModelContext) -> keras.Model; null: the default model."
        ),
    )
    model: ModelConfig = Field(
        default=ModelConfig(),
        description="Settings of the default model, and options for model_fn.",
    )
    label: Annotated[str | None, SELECTION_CRITERION] = Field(
        default=None,
        examples=["tips"],
        description="Transformed feature to predict; null: the label of Transform's layout.",
    )
    weight: Annotated[str | None, SELECTION_CRITERION] = Field(
        default=None,
        examples=["row_weight"],
        description=(
            "Transformed feature with one weight per row; null: the weight of Transform's layout, "
            "if any."
        ),
    )
    label_scale: Annotated[Literal["auto", "z_score", "log", "none"], SELECTION_CRITERION] = Field(
        default="auto",
        description=(
            "Scale of a regression's label in training. The loss is on this scale; metrics and "
            "the exported model's outputs are in the label's unit. auto: z_score, or log for a "
            "skewed label; none with a model_fn or a loss that does not depend on differences "
            "alone."
        ),
    )
    loss: str | None = Field(
        default=None,
        examples=["huber"],
        description=(
            "Keras name or dotted path. null: binary_crossentropy, "
            "sparse_categorical_crossentropy or mean_squared_error, by the kind of the label."
        ),
    )
    metrics: Annotated[tuple[str, ...] | None, SELECTION_CRITERION] = Field(
        default=None,
        examples=[["auc", "f1_score"]],
        description=(
            "Keras names or dotted paths. null: auc and accuracy, accuracy, or "
            "mean_absolute_error, by the kind of the label (binary, multiclass, regression)."
        ),
    )
    class_weight: Literal["balanced"] | dict[int | str, float] | None = Field(
        default=None,
        examples=["balanced"],
        description=(
            "Weight of the rows of each class in training, by class number or name; 1 for classes "
            "that are not listed. It is multiplied by `weight` and not used in evaluation. "
            "balanced: every class has the same total weight."
        ),
    )
    optimizer: OptimizerConfig = Field(
        default=OptimizerConfig(), description="Keras name of the optimizer, or its settings."
    )

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_of_the_one_label(cls, value: object) -> object:
        if isinstance(value, Mapping):
            raise ValueError(
                f"settings by output ({', '.join(map(str, value))}) are not supported: a pipeline "
                "has one label and one list of metrics; for a model with several outputs write a "
                "program with TrainingLoop and Evaluation(metrics={output: [metric, ...]})"
            )
        return value

    @field_validator("class_weight", mode="before")
    @classmethod
    def _class_numbers(cls, value: object) -> object:
        if isinstance(value, str) and value != "balanced":
            raise ValueError('use "balanced", or weights by class: {0: 1.0, 1: 9.0}')
        if not isinstance(value, Mapping):
            return value
        # JSON keys are strings.
        return {
            int(key) if isinstance(key, str) and key.lstrip("-").isdecimal() else key: weight
            for key, weight in value.items()
        }

    @field_validator("class_weight")
    @classmethod
    def _class_weights(cls, value: object) -> object:
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
    def _optimizer_by_name(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_model_options(self) -> TaskOptions:
        if self.model.options and self.model_fn is None:
            raise ValueError(
                f"model.options={self.model.options} have no effect: the default model has no "
                "options; set model_fn, or leave them out"
            )
        return self

    @model_validator(mode="after")
    def _names_of_keras(self) -> TaskOptions:
        """Check names without importing Keras, which takes seconds; see `model.plan.resolve`."""
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
