"""Options for what a training learns: label, model, loss, metrics, optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.common.keras_names import Kind, check_keras_name
from trainer_module.options.model_config import ModelConfig, OptimizerConfig
from trainer_module.options.settings import SELECTION_CRITERION, Settings


class TaskOptions(Settings):
    """What a training learns, from which label, with which loss and optimizer."""

    model_fn: str | None = Field(
        default=None,
        description="Dotted path of (ModelContext) -> keras.Model; null: the default model.",
    )
    model: ModelConfig = ModelConfig()
    label: Annotated[str | None, SELECTION_CRITERION] = Field(
        default=None, description="Transformed feature; default from the layout."
    )
    weight: Annotated[str | None, SELECTION_CRITERION] = Field(
        default=None, description="Transformed feature with weights per row."
    )
    label_scale: Annotated[Literal["auto", "z_score", "log", "none"], SELECTION_CRITERION] = Field(
        default="auto",
        description=(
            "Scale that a regression is trained on; metrics and the exported model keep the "
            "label's own unit, the loss does not. auto: z_score, or log where the label is skewed; "
            "none with a model_fn, and for losses that are not of differences."
        ),
    )
    loss: str | None = Field(
        default=None, description="Keras name or dotted path; default from the kind of label."
    )
    metrics: Annotated[tuple[str, ...] | None, SELECTION_CRITERION] = Field(
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

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_of_the_one_label(cls, value: object) -> object:
        if isinstance(value, Mapping):
            raise ValueError(
                f"settings by output ({', '.join(map(str, value))}) have no place here: a pipeline "
                "has one label, and so one list of metrics; for a model of several outputs write a "
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
                f"model.options={self.model.options} are read by no one: the default model has "
                "none; give model_fn, or leave them out"
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
