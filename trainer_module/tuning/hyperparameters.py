"""Read and replace settings of a configuration by their dotted paths."""

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

# A value of a setting, of any type.
Setting: TypeAlias = Any
# A type annotation: a class, a union or a generic alias.
DeclaredType: TypeAlias = Any


def _setting_paths(model: type[BaseModel] = TrainerConfig, prefix: str = "") -> list[str]:
    """Return the path of every setting, including sections: optimizer, optimizer.name, ..."""
    paths = []
    for name, field in model.model_fields.items():
        paths.append(f"{prefix}{name}")
        section = _section_in(field.annotation)
        if section is not None:
            paths += _setting_paths(section, f"{prefix}{name}.")
    return paths


def type_of(path: str, *, field: str = "trainer") -> DeclaredType:
    """Return the declared type of a setting; object below a dict (optimizer.options.beta_1)."""
    declared: DeclaredType = TrainerConfig
    for part in path.split("."):
        section = _section_in(declared)
        if section is not None and part in section.model_fields:
            declared = section.model_fields[part].annotation
        elif typing.get_origin(declared) is dict:
            declared = typing.get_args(declared)[1]
        else:
            named = f"{field}.{path}" if field else path
            raise ValueError(f"{named} is not a setting: {nearest(path, _setting_paths())}")
    return declared


def with_values(
    config: TrainerConfig, values: Mapping[str, Setting], *, section: str = "trainer"
) -> TrainerConfig:
    """Return the configuration with other values for some settings."""
    settings = config.model_dump()
    for path, value in values.items():
        type_of(path, field=section)
        *parents, name = path.split(".")
        place = settings
        for parent in parents:
            place[parent] = place[parent] or {}  # the section is null
            place = place[parent]
        place[name] = value
    return TrainerConfig.parse(settings, section=section)


def _value_at(config: TrainerConfig, path: str) -> Setting:
    """Return the value of a setting; None if one of its sections is null."""
    value: Setting = config
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return value


def with_hyperparameters(config: TrainerConfig, found: Mapping[str, Setting]) -> TrainerConfig:
    """Return the configuration with a Tuner's best values, and log them.

    `found` is KerasTuner's `HyperParameters.get_config()`, as TFX passes it to a Trainer.
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
        before, after = _value_at(config, path), _value_at(tuned, path)
        logging.info("From the Tuner: trainer.%s=%r instead of %r", path, after, before)
    return tuned


def setting_values(values: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return the values of settings, of which KerasTuner keeps some as JSON text."""
    return {
        path: json.loads(value) if isinstance(value, str) and _is_json(value) else value
        for path, value in values.items()
    }


def as_choices(values: Sequence[Setting]) -> list[Setting]:
    """Return values of any JSON type for KerasTuner's Choice, which needs one simple type.

    Integers are unchanged, other numbers become floats, and strings that are not JSON are
    unchanged. Everything else becomes JSON text.
    """
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return list(values)
    if kinds <= {int, float}:
        return [float(value) for value in values]
    if kinds == {str} and not any(_is_json(value) for value in values):
        return list(values)
    return [json.dumps(value) for value in values]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def alternatives(declared: DeclaredType) -> tuple[DeclaredType, ...]:
    """Return the types of a union, or the single type."""
    is_union = typing.get_origin(declared) in (typing.Union, types.UnionType)
    return typing.get_args(declared) if is_union else (declared,)


def _section_in(declared: DeclaredType) -> type[BaseModel] | None:
    """Return the model of a section, which may be optional."""
    for kind in alternatives(declared):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None
