"""Settings by their dotted paths, and a configuration with other values in their places."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from absl import logging
from pydantic import BaseModel

from shared_core.nearest import nearest
from trainer_module.config import TrainerConfig

Setting: TypeAlias = Any  # a value of a setting, of any type
DeclaredType: TypeAlias = Any  # a type annotation

# KerasTuner's own entries among the values, such as the epochs of a round of Hyperband.
RESERVED = "tuner/"


def setting_paths(model: type[BaseModel] = TrainerConfig, prefix: str = "") -> list[str]:
    """Returns every setting, sections included: optimizer, optimizer.name, ..."""
    paths = []
    for name, field in model.model_fields.items():
        paths.append(f"{prefix}{name}")
        section = _section_in(field.annotation)
        if section is not None:
            paths += setting_paths(section, f"{prefix}{name}.")
    return paths


def type_of(path: str, *, field: str = "trainer") -> DeclaredType:
    """Returns the declared type of a setting; Any below a free dict (optimizer.options.beta_1).

    Args:
        path: Dotted path of a TrainerConfig field.
        field: What the path is relative to, for the error message; "" for nothing.

    Raises:
        ValueError: There is no such setting; names the nearest.
    """
    declared: DeclaredType = TrainerConfig
    for part in path.split("."):
        section = _section_in(declared)
        if section is not None and part in section.model_fields:
            declared = section.model_fields[part].annotation
        elif typing.get_origin(declared) is dict:
            declared = typing.get_args(declared)[1]
        else:
            named = f"{field}.{path}" if field else path
            raise ValueError(f"{named} is not a setting: {nearest(path, setting_paths())}")
    return declared


def with_values(
    config: TrainerConfig, values: Mapping[str, Setting], *, section: str = "trainer"
) -> TrainerConfig:
    """Returns the configuration with other values in some places.

    Args:
        config: Stays as it is.
        values: Dotted path of a field to its value.
        section: How the fields are called in messages.

    Raises:
        ValueError: No such setting, or the values are wrong or do not fit the others.
    """
    settings = config.model_dump()
    for path, value in values.items():
        type_of(path, field=section)
        *parents, name = path.split(".")
        place = settings
        for parent in parents:
            place[parent] = place[parent] or {}  # a section that is null
            place = place[parent]
        place[name] = value
    return TrainerConfig.parse(settings, section=section)


def value_at(config: TrainerConfig, path: str) -> Setting:
    """Returns the value of a setting; None where a section around it is null."""
    value: Setting = config
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return value


def with_hyperparameters(config: TrainerConfig, found: Mapping[str, Setting]) -> TrainerConfig:
    """Returns the configuration with a Tuner's best values in it, and logs them.

    Args:
        config: The Trainer's.
        found: KerasTuner's `HyperParameters.get_config()`, as TFX hands it to a Trainer: its
            `values` are named by dotted paths of TrainerConfig fields.

    Raises:
        ValueError: A name that is no setting, or a value that the setting does not take.
    """
    if not isinstance(found.get("values"), Mapping):
        raise ValueError(
            "the Trainer's hyperparameters have no 'values': they must be what KerasTuner's "
            "HyperParameters.get_config() gives, as TFX's Tuner writes it."
        )
    values = setting_values(found["values"])
    try:
        tuned = with_values(config, values)
    except ValueError as error:
        raise ValueError(f"the Tuner's hyperparameters do not fit the Trainer: {error}") from None
    for path in values:
        before, after = value_at(config, path), value_at(tuned, path)
        logging.info("From the Tuner: trainer.%s=%r instead of %r", path, after, before)
    return tuned


def setting_values(values: Mapping[str, Setting]) -> dict[str, Setting]:
    """Returns KerasTuner's values as those of settings, without its own entries."""
    return {
        path: from_choice(value) for path, value in values.items() if not path.startswith(RESERVED)
    }


def as_choices(values: Sequence[Setting]) -> list[Setting]:
    """Returns values of any JSON type as KerasTuner's Choice takes them: all of one simple type.

    Whole numbers, numbers, or texts stay what they are; all else becomes JSON text.
    """
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return list(values)
    if kinds <= {int, float}:
        return [float(value) for value in values]
    if kinds == {str} and not any(_is_json(value) for value in values):
        return list(values)
    return [json.dumps(value) for value in values]


def from_choice(value: Setting) -> Setting:
    """Returns the value that `as_choices` was given."""
    return json.loads(value) if isinstance(value, str) and _is_json(value) else value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def alternatives(declared: DeclaredType) -> tuple[DeclaredType, ...]:
    """Returns the types of a union, or the one type."""
    is_union = typing.get_origin(declared) in (typing.Union, types.UnionType)
    return typing.get_args(declared) if is_union else (declared,)


def _section_in(declared: DeclaredType) -> type[BaseModel] | None:
    """Returns the model of a section, which may be optional."""
    for kind in alternatives(declared):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None
