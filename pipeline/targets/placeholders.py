"""Placeholders of a compiled pipeline: what the platform puts into a container's command line.

The forms are those of KFP's pipelineSpec (`{{$}}` is the whole ExecutorInput).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{\$(.*?)\}\}")
_STRUCTURED = ('{"IfPresent":', '{"Concat":')
_STEP = re.compile(r"\.(\w+)|\['([^']*)'\]")
# Where ExecutorInput's JSON names differ from the placeholder's; `path` is where a platform mounts
# what is at `uri`, which is the same place here.
_NAMES = {"output_file": "outputFile", "path": "uri"}


def filled(text: str, executor_input: Mapping[str, Any]) -> str:
    """Returns the text with each placeholder replaced.

    Args:
        text: a part of a command line, or of a resolver's query.
        executor_input: ExecutorInput as JSON.

    Raises:
        ValueError: a placeholder names what is not there, or is of an unknown form.
    """
    return _PLACEHOLDER.sub(lambda found: _value(found[1], executor_input), text)


def words_of(text: str, executor_input: Mapping[str, Any]) -> list[str]:
    """Returns what an argument stands for: one word, or as many as KFP's IfPresent and Concat say.

    Args:
        text: the argument; `{"IfPresent": {"InputName": "x", "Then": [...]}}` is one of KFP's.
        executor_input: ExecutorInput as JSON.

    Raises:
        ValueError: as of `filled`.
    """
    if text.startswith(_STRUCTURED):
        return _expanded(json.loads(text), executor_input)
    return [filled(text, executor_input)]


def _expanded(node: Any, executor_input: Mapping[str, Any]) -> list[str]:
    if isinstance(node, str):
        return [filled(node, executor_input)]
    if isinstance(node, list):
        return [word for each in node for word in _expanded(each, executor_input)]
    if "Concat" in node:
        return ["".join(_expanded(node["Concat"], executor_input))]
    condition, inputs = node["IfPresent"], executor_input["inputs"]
    is_there = any(
        condition["InputName"] in inputs[kind] for kind in ("parameterValues", "artifacts")
    )
    return _expanded(condition.get("Then" if is_there else "Else", []), executor_input)


def _value(path: str, executor_input: Mapping[str, Any]) -> str:
    if not path:
        return json.dumps(executor_input)
    node: Any = executor_input
    steps = [_NAMES.get(plain, plain) or quoted for plain, quoted in _STEP.findall(path)]
    if steps[:2] == ["inputs", "parameters"]:
        steps[1] = "parameterValues"
    try:
        for place, step in enumerate(steps):
            if step == "value" and place == len(steps) - 1 and "uri" in node:
                with open(node["uri"], encoding="utf-8") as stream:
                    return stream.read()
            node = node[step]
            if isinstance(node, Mapping) and set(node) == {"artifacts"} and place > 1:
                node = node["artifacts"][0]
    except (KeyError, IndexError, TypeError):
        raise ValueError(
            f"the placeholder {{{{${path}}}}} names nothing: there are "
            f"{(', '.join(map(repr, node)) or 'none') if isinstance(node, Mapping) else node!r}."
        ) from None
    return node if isinstance(node, str) else json.dumps(node)
