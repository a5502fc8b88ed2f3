"""Shows the code below `Example:` of a docstring as code: griffe takes it for a paragraph."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:\n((?: {4}.*\n?|\n)+)", re.MULTILINE)


def _block(match: re.Match[str]) -> str:
    return f"**Example:**\n\n```python\n{inspect.cleandoc(match[1])}\n```\n\n"


class CodeExamples(griffe.Extension):
    """Puts the lines of each example into a block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_block, inspect.cleandoc(obj.docstring.value))
