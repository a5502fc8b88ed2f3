"""Compress long execution properties, because Linux limits one argument of a process to 128 KiB.

A platform passes all properties of a node in one argument (`{{$}}`, the ExecutorInput), so a list
of thousands of columns would prevent the container from starting. The compiler compresses long
values, and the entry point expands them before TFX reads them. What is still too long to start is
refused.
"""

from __future__ import annotations

import base64
import json
import lzma
import os
from collections.abc import Callable, Sequence

from pipeline.common.json_types import JsonObject, JsonValue

_LONGEST_ARGUMENT = 128 * 1024
"""Bytes of one argument with its end (MAX_ARG_STRLEN): longer ones start no process (E2BIG)."""

_PREFIX = "lzma+base64:"
_LONG = 4096
"""Shorter texts stay readable in the platform's pages."""
# TFX's driver of an ExampleGen reads these from the ExecutorInput, before the entry point.
_READ_BY_DRIVER = frozenset({"input_base", "input_config", "range_config"})


_LARGEST_WORKFLOW = 1_500_000
# The whole ExecutorInput is one argument: besides the properties it has the artifacts' places.
_OF_ARTIFACTS = 8 * 1024
_FIX = (
    "name fewer columns one by one (a group can select them by a pattern such as price_*), or give "
    "them shorter names."
)


def compress_properties(task: JsonObject) -> None:
    """Compress the constants of a task that would not arrive unchanged, in place."""
    # Kubernetes replaces `$$` and `$(NAME)` in arguments, and all constants are in one argument.
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        value = source.get("runtimeValue", {}).get("constant")
        if not isinstance(value, str) or name in _READ_BY_DRIVER:
            continue
        if len(value) > _LONG or "$$" in value or "$(" in value:
            source["runtimeValue"]["constant"] = _compress(value)


def change_texts(node: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """Return JSON values with each text changed; a compressed one is expanded for `change`."""
    if isinstance(node, dict):
        return {key: change_texts(each, change) for key, each in node.items()}
    if isinstance(node, list):
        return [change_texts(each, change) for each in node]
    if not isinstance(node, str):
        return node
    before = expand(node)
    after = change(before)
    if after == before:
        return node
    return _compress(after) if node.startswith(_PREFIX) else after


def _compress(text: str) -> str:
    """Return a text of ASCII letters, digits and `+/=:` that `expand` reverses."""
    packed = lzma.compress(text.encode(), format=lzma.FORMAT_ALONE, preset=lzma.PRESET_EXTREME | 6)
    return _PREFIX + base64.b64encode(packed).decode("ascii")


def expand(text: str) -> str:
    """Return the text that `compress` packed; any other text unchanged."""
    if not text.startswith(_PREFIX):
        return text
    return lzma.decompress(base64.b64decode(text.removeprefix(_PREFIX))).decode()


def refuse_long_arguments(words: Sequence[str]) -> str:
    """Return why a command cannot be started; "" if its arguments are short enough."""
    for place, word in enumerate(words):
        size = len(os.fsencode(word)) + 1
        if size > _LONGEST_ARGUMENT:
            flag = words[place - 1] if place and words[place - 1].startswith("--") else f"{place}"
            return (
                f"cannot start: its argument {flag} has {_as_size(size)}, and Linux takes "
                f"{_as_size(_LONGEST_ARGUMENT)} in one. Compile the pipeline again (long settings "
                "are compressed), or name fewer columns"
            )
    return ""


def _as_size(count: int) -> str:
    """Return a number of bytes as text in KiB."""
    return f"{count / 1024:,.0f} KiB"


def find_oversized(spec: JsonObject, target: str) -> list[str]:
    """Return the parts of a pipelineSpec that are too large, one sentence each."""
    graphs = (spec["root"], *spec["components"].values())
    all_tasks = {k: t for g in graphs for k, t in g.get("dag", {}).get("tasks", {}).items()}
    errors = []
    for name, task in all_tasks.items():
        values = {
            key: source["runtimeValue"].get("constant")
            for key, source in task.get("inputs", {}).get("parameters", {}).items()
            if "runtimeValue" in source
        }
        if (size := _json_size(values)) + _OF_ARTIFACTS >= _LONGEST_ARGUMENT:
            longest = max(values, key=lambda key: _json_size(values[key]))
            errors.append(
                f"{name}: its settings have {_as_size(size)} as they travel (compressed), most of "
                f"it in {longest}, and its container gets them in one argument, of less than "
                f"{_as_size(_LONGEST_ARGUMENT - _OF_ARTIFACTS)}; {_FIX}"
            )
    if target != "kubeflow":
        return errors
    arguments_of_driver = {
        "task": all_tasks,
        # A graph's component has all of its tasks: the driver of the graph gets all of it.
        "component": {"root": spec["root"], **spec["components"]},
        "container": spec["deploymentSpec"]["executors"],
    }
    errors += [
        f"{name}: its {kind} has {_as_size(size)} as JSON, which Kubeflow's driver takes as one "
        f"argument, of less than {_as_size(_LONGEST_ARGUMENT)}; {_FIX}"
        for kind, parts in arguments_of_driver.items()
        for name, part in parts.items()
        if (size := _json_size(part)) >= _LONGEST_ARGUMENT
    ]
    if (size := _json_size(spec)) > _LARGEST_WORKFLOW:
        errors.append(
            f"the compiled pipeline has {_as_size(size)}, and Kubeflow stores a run as one object "
            f"of etcd, of {_as_size(_LARGEST_WORKFLOW)} at most: use fewer nodes or groups."
        )
    return errors


def _json_size(value: JsonValue) -> int:
    return len(as_json(value).encode())


def as_json(value: JsonValue) -> str:
    """Return JSON in the platforms' format: compact, 2.0 as 2."""
    return json.dumps(_with_integers(value), separators=(",", ":"), ensure_ascii=False)


def _with_integers(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _with_integers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_integers(each) for each in value]
    # The platforms' JSON has only doubles; beyond 2^53 they are written with an exponent.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
