"""Settings of the default model, the optimizer and early stopping."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.options.settings import NEWER_OPTION, Settings


class ModelConfig(Settings):
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
    linear: Annotated[bool, NEWER_OPTION] = Field(
        default=False,
        description=(
            "Add a linear model of the same inputs to the dense layers' output. It starts at a "
            "ridge or logistic regression of the training rows, which also choose the label scale."
        ),
    )
    options: dict[str, object] = Field(
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


class ScheduleConfig(Settings):
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


class OptimizerConfig(Settings):
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
    options: dict[str, object] = Field(
        default_factory=dict, description="Further arguments of the Keras optimizer."
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
        default="loss", description="loss, or one of `metrics`; on the eval split."
    )
    patience_epochs: int = Field(default=3, ge=1)
    mode: Literal["auto", "min", "max"] = Field(
        default="auto",
        description="min: smaller is better. auto: what the name of the metric says.",
    )
    min_delta: float = Field(default=0.0, ge=0, description="A smaller change is no improvement.")
    restore_best: bool = Field(default=True, description="Export the weights of the best epoch.")
