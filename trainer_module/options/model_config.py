"""Settings of the default model, the optimizer and early stopping."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.options.settings import Settings


class ModelConfig(Settings):
    """Settings of the default model: embeddings for ids, then hidden layers."""

    hidden_units: tuple[int, ...] = Field(
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

    @field_validator("sparsity")
    @classmethod
    def _share(cls, value: float | None) -> float | None:
        if value is not None and not 0 < value < 1:
            raise ValueError("use a share above 0 and below 1, such as 0.8, or null for none")
        return value

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

    name: Literal["cosine", "linear", "exponential"] = Field(description="Shape of the decay.")
    warmup_steps: int = Field(
        default=0, ge=0, description="Optimizer steps of linear warm-up from 0 to learning_rate."
    )
    decay_steps: int | None = Field(
        default=None,
        ge=1,
        description="Optimizer steps of decay after the warm-up; null: until the end of training.",
    )
    final_fraction: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Learning rate at the end of the decay, as a fraction of learning_rate.",
    )

    @model_validator(mode="after")
    def _exponential_end(self) -> ScheduleConfig:
        if self.name == "exponential" and self.final_fraction == 0:
            raise ValueError("an exponential schedule needs final_fraction above 0, such as 0.1")
        return self


class OptimizerConfig(Settings):
    """A Keras optimizer and its options."""

    name: str = Field(default="adamw", description="Keras name, such as adamw, adam, sgd or lion.")
    learning_rate: float | Literal["auto"] = Field(
        default=1e-3,
        description=(
            "Learning rate, above 0; with a schedule, its peak. auto: a range test of 200 windows "
            "with growing rates before the training; the rate is a tenth of the one with the "
            "lowest loss."
        ),
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
    def _rate(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and not 0 < value < float("inf"):
            raise ValueError('use a number above 0, or "auto"')
        return value


class EarlyStoppingConfig(Settings):
    """Stop when an evaluation metric has not improved for some epochs."""

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
    min_delta: float = Field(
        default=0.0, ge=0, description="Smallest change that counts as an improvement."
    )
    restore_best: bool = Field(
        default=True,
        description="Whether to export the weights of the best epoch instead of the last.",
    )
