"""The `tuning:` section of the YAML: a search for better settings."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from shared_core.nearest import nearest
from trainer_module.common.tensors import Json
from trainer_module.common.user_values import better_mode
from trainer_module.config import DEFAULT_METRICS, TrainerConfig
from trainer_module.options.settings import fix_of, parse_section
from trainer_module.tuning.hyperparameters import (
    DeclaredType,
    Setting,
    alternatives,
    type_of,
    with_values,
)

_DEFAULT_TRIALS = 10
# Most combinations of values and ends of ranges to check before the first trial.
_MOST_CHECKED = 10_000


class SearchRange(BaseModel):
    """The values of a setting to search: `values`, or from `min` to `max`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    values: tuple[object, ...] | None = Field(
        default=None, min_length=1, description="Values to choose from, of any type."
    )
    min: int | float | None = Field(default=None, description="Smallest value.")
    max: int | float | None = Field(default=None, description="Largest value, included.")
    step: int | float | None = Field(
        default=None,
        gt=0,
        description=(
            "Difference of neighbouring values, or their ratio with sampling: log. null: any "
            "value between min and max."
        ),
    )
    sampling: Literal["linear", "log"] = Field(
        default="linear", description="log: 0.001 to 0.01 is drawn as often as 0.01 to 0.1."
    )

    @model_validator(mode="after")
    def _one_way(self) -> SearchRange:
        if self.values is not None:
            if (self.min, self.max, self.step, self.sampling) != (None, None, None, "linear"):
                raise ValueError("give values, or min and max with step and sampling, not both")
            return self
        if self.min is None or self.max is None:
            raise ValueError("give values: [...], or min and max")
        if not self.min < self.max:
            raise ValueError(f"min={self.min} is not below max={self.max}")
        if self.sampling == "log" and not self.min > 0:
            raise ValueError(f"sampling: log needs min above 0, not {self.min}")
        if self.sampling == "log" and self.step is not None and not self.step > 1:
            raise ValueError(f"with sampling: log, step={self.step} is a ratio: use more than 1")
        return self

    @property
    def ends(self) -> tuple[Setting, ...]:
        """Return all values, or both ends of the range."""
        return self.values if self.values is not None else (self.min, self.max)


class TunerConfig(BaseModel):
    """The settings that `tuner_fn` reads from `custom_config["tuner"]`.

    Each trial is a training of `custom_config["trainer"]` with other values of the settings in
    `search`. Its score is the objective on the eval split.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    search: dict[str, SearchRange] = Field(
        examples=[{"optimizer.learning_rate": {"values": [0.001, 0.01]}}],
        min_length=1,
        description="Dotted path of a training setting (optimizer.learning_rate) to its range.",
    )
    algorithm: Literal["random", "grid", "bayesian"] = Field(
        default="random",
        description=(
            "random; grid: every combination, with ten values of a range without step; bayesian: "
            "by a model of the earlier results."
        ),
    )
    trials: int | None = Field(
        default=None,
        ge=1,
        description=("Largest number of trials. null: 10 for random and bayesian, all of grid."),
    )
    objective: str = Field(
        default="loss",
        description=(
            "The score of a trial on the eval split: loss or one of the training's metrics."
        ),
    )
    mode: Literal["auto", "min", "max"] = Field(
        default="auto",
        description=(
            "min: smaller is better; max: larger is better; auto: derived from the objective's "
            "name."
        ),
    )
    epochs: int | None = Field(
        default=None,
        ge=1,
        description="Epochs of a trial; null: those of the training. Give epochs or steps.",
    )
    steps: int | None = Field(
        default=None, ge=1, description="Optimizer steps of a trial. Give epochs or steps."
    )
    seed: int = Field(
        default=0,
        ge=0,
        description="Seed of the search. The seed of each trial is that of the training.",
    )

    @field_validator("search")
    @classmethod
    def _settings(cls, search: dict[str, SearchRange]) -> dict[str, SearchRange]:
        return {path: _with_declared_type(path, searched) for path, searched in search.items()}

    @model_validator(mode="after")
    def _length(self) -> TunerConfig:
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs={self.epochs} and steps={self.steps}: give one of them")
        return self

    @property
    def most_trials(self) -> int | None:
        """Largest number of trials; None: all of a grid."""
        if self.trials is None and self.algorithm != "grid":
            return _DEFAULT_TRIALS
        return self.trials

    def trial_config(
        self,
        trainer: TrainerConfig,
        values: Mapping[str, Setting],
        *,
        section: str = "trainer",
    ) -> TrainerConfig:
        """Return the configuration of a trial.

        Args:
            trainer: The training to tune.
            values: Dotted path of a setting to the trial's value.
            section: Name of the training's settings in messages.

        Raises:
            ValueError: A value is wrong or does not fit the others.
        """
        length: dict[str, Setting] = {}
        if self.epochs is not None:
            length = {"epochs": self.epochs, "steps": None}
        elif self.steps is not None:
            length = {"epochs": None, "steps": self.steps}
        return with_values(trainer, {**length, **values}, section=section)

    def combinations(
        self, trainer: TrainerConfig, *, section: str = "trainer"
    ) -> Iterator[TrainerConfig]:
        """Yield the training with all combinations of values and ends of ranges, at most 10,000.

        Raises:
            ValueError: See `trial_config`.
        """
        ends = (searched.ends for searched in self.search.values())
        for combination in itertools.islice(itertools.product(*ends), _MOST_CHECKED):
            values = dict(zip(self.search, combination, strict=True))
            yield self.trial_config(trainer, values, section=section)

    def check(
        self,
        trainer: TrainerConfig,
        *,
        label_kind: str | None = None,
        section: str = "trainer",
        own: str = "tuner",
    ) -> None:
        """Check that the search fits the training.

        Args:
            trainer: The training to tune.
            label_kind: binary, multiclass or regression, which determines the default metrics; None
                if unknown.
            section: Name of the training's settings in messages.
            own: Name of this configuration in messages.

        Raises:
            ValueError: The message has the setting, its value and a suggestion.
        """
        try:
            for _ in self.combinations(trainer, section=section):
                pass
        except ValueError as error:
            raise ValueError(f"{own}.search: {error}") from None
        if self.objective == "loss" and "loss" in self.search:
            raise ValueError(
                f"{own}.search: {section}.loss is searched, and {own}.objective='loss' is not "
                "comparable between losses: use a metric as the objective."
            )
        kinds = DEFAULT_METRICS.values() if label_kind is None else [DEFAULT_METRICS[label_kind]]
        names = trainer.metrics or tuple(itertools.chain(*kinds))
        check_objective(self.objective, names, field=f"{own}.objective")
        better_mode(self.objective, self.mode, field=f"{own}.mode")

    @classmethod
    def parse(cls, values: Json, *, section: str = "tuner") -> TunerConfig:
        """Return the configuration from JSON values.

        Args:
            values: The content of `custom_config["tuner"]`: a dict of JSON values.
            section: Name of the configuration in messages.

        Raises:
            ValueError: The message lists every wrong field with its value and a suggestion.
        """
        return parse_section(cls, values, section=section)


def check_objective(objective: str, metrics: Sequence[str], *, field: str) -> None:
    """Raise ValueError if the objective is neither the loss nor one of the metrics."""
    known = ["loss", *(name.rpartition(".")[2] for name in metrics)]
    # A metric with one value per class has the names f1_score/0, f1_score/1, ...
    if objective.partition("/")[0] not in known:
        raise ValueError(f"{field}={objective!r} is not evaluated; {nearest(objective, known)}")


def _with_declared_type(path: str, searched: SearchRange) -> SearchRange:
    """Return the range with numbers and values of the type that the setting declares."""
    declared = type_of(path, field="")
    if (role := TrainerConfig.roles().get(path)) and role.untunable:
        raise ValueError(f"{path} cannot be searched: {role.untunable}")
    if searched.values is None:
        return _typed_range(path, searched, set(alternatives(declared)))
    adapter = TypeAdapter(declared)
    values = []
    for value in searched.values:
        is_flag = isinstance(value, bool) and not {bool, object} & set(alternatives(declared))
        try:
            valid = adapter.validate_python(str(value) if is_flag else value)
        except ValidationError as error:
            default = functools.reduce(getattr, path.split("."), TrainerConfig(epochs=1))
            such_as = "" if default is None else f"; use values such as {default}"
            raise ValueError(
                f"{path}={value!r}: {fix_of(error.errors()[0]['msg'])}{such_as}"
            ) from None
        values.append(adapter.dump_python(valid, mode="json"))
    return searched.model_copy(update={"values": tuple(values)})


def _typed_range(path: str, searched: SearchRange, declared: set[DeclaredType]) -> SearchRange:
    if object in declared:
        return searched
    kind = float if float in declared else int if int in declared else None
    if kind is None:
        raise ValueError(f"{path} is not a number: give values: [...] instead of min and max")
    numbers = {"min": searched.min, "max": searched.max, "step": searched.step}
    numbers = {name: number for name, number in numbers.items() if number is not None}
    if kind is int and any(number != int(number) for number in numbers.values()):
        raise ValueError(f"{path} is a whole number: use whole numbers for min, max and step")
    return searched.model_copy(update={name: kind(n) for name, n in numbers.items()})
