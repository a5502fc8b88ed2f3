"""The parameters that a pipeline declares, and their values in a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.targets.compiled_spec import CompiledSpec
from pipeline.targets.run_time_parameters import check_values, rename_as_declared

_TRUTHS = {"true": True, "false": False}


def values_of(compiled: CompiledSpec, texts: Mapping[str, str]) -> JsonObject:
    """Return the value of every parameter: from `texts`, from the compiled job, or its default.

    Args:
        compiled: The pipeline; its root declares the parameters.
        texts: Name -> text of the values for this run. The name may be the field of the YAML that
            the parameter sets (`training.epochs`).

    Raises:
        ConfigError: The pipeline does not have a parameter, a text does not have its type, a
            parameter has neither a value nor a default, or the YAML's field does not accept a
            value.
    """
    root = compiled.spec["root"].get("inputDefinitions", {})
    declared = root.get("parameters", {})
    texts = rename_as_declared(texts, declared)
    unknown = [name for name in texts if name not in declared]
    if unknown:
        there = f"it has {', '.join(declared)}" if declared else "it has none"
        raise ConfigError(
            f"--parameter {unknown[0]}: the pipeline has no parameter of this name; {there}."
        )
    values = {}
    for name, each in declared.items():
        if name in texts:
            values[name] = _typed(name, texts[name], each.get("parameterType", "STRING"))
        elif name in compiled.parameters:
            values[name] = compiled.parameters[name]
        elif "defaultValue" in each:
            values[name] = each["defaultValue"]
        elif not each.get("isOptional"):
            kind = each.get("parameterType", "STRING")
            raise ConfigError(
                f"the pipeline's parameter {name} ({kind}) has no value and no default; give it "
                f"with --parameter {name}=VALUE."
            )
    check_values(compiled.spec, values)
    return values


def given_parameters(texts: Iterable[str]) -> dict[str, str]:
    """Return the names and texts of `--parameter NAME=VALUE`; an empty text is a value."""
    return dict(
        name_and_value(each, "--parameter", "name=value", may_be_empty=True) for each in texts
    )


def name_and_value(
    text: str, flag: str, example: str, *, may_be_empty: bool = False
) -> tuple[str, str]:
    """Return the two parts of `name=value`.

    Args:
        text: The text to split.
        flag: The option that the text comes from, for the message.
        example: A valid text, for the message.
        may_be_empty: Whether "" is a value.

    Raises:
        ConfigError: A part is missing.
    """
    name, equals, value = text.partition("=")
    if not (name and equals and (value or may_be_empty)):
        raise ConfigError(f"{flag} {text}: give two parts with = between, as in {flag} {example}.")
    return name, value


def _typed(name: str, text: str, kind: str) -> Any:
    try:
        if kind == "NUMBER_INTEGER":
            return int(text)
        if kind == "NUMBER_DOUBLE":
            return float(text)
        if kind == "BOOLEAN":
            return _TRUTHS[text.lower()]
        if kind in ("LIST", "STRUCT"):
            return json.loads(text)
    except (ValueError, KeyError):
        examples = {"NUMBER_INTEGER": "3", "NUMBER_DOUBLE": "0.5", "BOOLEAN": "true"}
        example = examples.get(kind, "'[1, 2]'" if kind == "LIST" else "'{\"a\": 1}'")
        raise ConfigError(
            f"--parameter {name}={text}: the pipeline's parameter is of type {kind}; write it as "
            f"in --parameter {name}={example}."
        ) from None
    return text
