"""Options for what a training learns: label, model, loss, metrics, optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trainer_module.common.keras_names import Kind, check_keras_name
from trainer_module.options.model_config import ModelConfig, OptimizerConfig
from trainer_module.options.settings import SELECTION_CRITERION, Settings


class TaskOptions(Settings):
    """Label, model, loss, metrics and optimizer of a training."""

    model_fn: str | None = Field(
        default=None,
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
        description="Transformed feature to predict; null: the label of Transform's layout.",
    )
    weight: Annotated[str | None, SELECTION_CRITERION] = Field(
        default=None,
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
        description=(
            "Keras name or dotted path. null: binary_crossentropy, "
            "sparse_categorical_crossentropy or mean_squared_error, by the kind of the label."
        ),
    )
    metrics: Annotated[tuple[str, ...] | None, SELECTION_CRITERION] = Field(
        default=None,
        description=(
            "Keras names or dotted paths. null: auc and accuracy, accuracy, or "
            "mean_absolute_error, by the kind of the label (binary, multiclass, regression)."
        ),
    )
    class_weight: Literal["balanced"] | dict[int | str, float] | None = Field(
        default=None,
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
