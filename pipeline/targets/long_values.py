"""Compress long execution properties, because Linux limits one argument of a process to 128 KiB.

A platform passes all properties of a node in one argument (`{{$}}`, the ExecutorInput), so a list
of thousands of columns would prevent the container from starting. The compiler compresses long
values, and the entry point expands them before TFX reads them.
"""

from __future__ import annotations

import base64
import lzma
from collections.abc import Callable

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.targets.spec_types import JsonMapping, Task

_PREFIX = "lzma+base64:"
_LONG = 4096
"""Shorter texts stay readable in the platform's pages."""
# TFX's driver of an ExampleGen reads these from the ExecutorInput, before the entry point.
_READ_BY_DRIVER = frozenset({"input_base", "input_config", "range_config"})


def compress_properties(task: Task) -> None:
    """Compress the constants of a task that would not arrive unchanged, in place.

    Kubernetes replaces `$$` and `$(NAME)` in arguments, and all constants are in one argument.
    """
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        value = source.get("runtimeValue", {}).get("constant")
        if not isinstance(value, str) or name in _READ_BY_DRIVER:
            continue
        if len(value) > _LONG or "$$" in value or "$(" in value:
            source["runtimeValue"]["constant"] = compress(value)


def expand_properties(values: JsonMapping) -> JsonObject:
    """Return the execution properties with compressed values expanded."""
    return {
        name: expand(value) if isinstance(value, str) else value for name, value in values.items()
    }


def change_compressed(node: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """Return JSON values with each compressed text changed, and all others unchanged.

    Args:
        node: JSON values, such as a pipelineSpec.
        change: Returns the new text for an expanded text.
    """
    if isinstance(node, dict):
        return {key: change_compressed(each, change) for key, each in node.items()}
    if isinstance(node, list):
        return [change_compressed(each, change) for each in node]
    if isinstance(node, str) and node.startswith(_PREFIX):
        before = expand(node)
        after = change(before)
        return node if after == before else compress(after)
    return node


def compress(text: str) -> str:
    """Return a text of ASCII letters, digits and `+/=:` that `expand` reverses."""
    packed = lzma.compress(text.encode(), format=lzma.FORMAT_ALONE, preset=lzma.PRESET_EXTREME | 6)
    return _PREFIX + base64.b64encode(packed).decode("ascii")


def expand(text: str) -> str:
    """Return the text that `compress` packed; any other text unchanged."""
    if not text.startswith(_PREFIX):
        return text
    return lzma.decompress(base64.b64decode(text.removeprefix(_PREFIX))).decode()
