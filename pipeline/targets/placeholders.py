"""Placeholders of a compiled pipeline, which the platform replaces in a container's command line.

The forms are those of KFP's pipelineSpec (`{{$}}` is the whole ExecutorInput).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from pipeline.common.json_types import JsonValue
from pipeline.targets.spec_types import ExecutorInput

_PLACEHOLDER = re.compile(r"\{\{\$(.*?)\}\}")
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['([^']*)'\]\}\}")
_STEP = re.compile(r"\.(\w+)|\['([^']*)'\]")
# Names that differ between ExecutorInput's JSON and the placeholders.
_NAMES = {"output_file": "outputFile"}


def _same_path(uri: str) -> str:
    """Return the URI unchanged, for platforms that download no artifacts."""
    return uri


@dataclass(frozen=True)
class Placeholders:
    """The values of the placeholders of one task.

    Attributes:
        executor_input: ExecutorInput as JSON values.
        path_of: Returns the local path of an artifact's URI, for `.path`.
    """

    executor_input: ExecutorInput
    path_of: Callable[[str], str] = _same_path

    def fill(self, text: str) -> str:
        """Return the text with each placeholder replaced.

        Raises:
            ValueError: A placeholder refers to a missing value, or has an unknown form.
        """
        filled = _PLACEHOLDER.sub(lambda found: self._value(found[1]), text)
        # Values may contain placeholders: KFP's compiler writes f"hi {name}" as such a constant.
        return _PARAMETER.sub(self._parameter, filled)

    def _parameter(self, found: re.Match[str]) -> str:
        values = self.executor_input.get("inputs", {}).get("parameterValues", {})
        return _as_text(values[found[1]]) if found[1] in values else found[0]

    def _value(self, path: str) -> str:
        if not path:
            return as_json(self.executor_input)
        node: JsonValue = self.executor_input
        steps = [_NAMES.get(plain, plain) or quoted for plain, quoted in _STEP.findall(path)]
        if steps[:2] == ["inputs", "parameters"]:
            steps[1] = "parameterValues"
        try:
            for place, step in enumerate(steps):
                if place == len(steps) - 1 and isinstance(node, Mapping) and "uri" in node:
                    if step == "path":
                        return self.path_of(node["uri"])
                    if step == "value":
                        with open(self.path_of(node["uri"]), encoding="utf-8") as stream:
                            return stream.read()
                node = node[step]
                if isinstance(node, Mapping) and set(node) == {"artifacts"} and place > 1:
                    node = node["artifacts"][0]
        except (KeyError, IndexError, TypeError):
            there = f"{node!r}"
            if isinstance(node, Mapping):
                there = ", ".join(map(repr, node)) or "none"
            raise ValueError(
                f"the placeholder {{{{${path}}}}} names nothing: there are {there}."
            ) from None
        return _as_text(node)


def _as_text(value: JsonValue) -> str:
    """Return a parameter's value as the platform writes it into an argument.

    A number has no `.0` and no exponent, as in Kubeflow's launcher_v2.go (`FormatFloat(x, 'f')`).
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # The platform uses doubles, so it also loses the last digit of 2^53 + 1.
        return format(Decimal(repr(float(value))).normalize(), "f")
    return as_json(value)


def as_json(value: JsonValue) -> str:
    """Return JSON in the platforms' format: compact, 2.0 as 2."""
    return json.dumps(_with_integers(value), separators=(",", ":"), ensure_ascii=False)


def _with_integers(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return {key: _with_integers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_integers(each) for each in value]
    # The platforms' JSON has only doubles; beyond 2^53 they are written with an exponent.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
