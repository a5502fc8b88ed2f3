"""Describe the errors of a text that is not YAML: the line of the cause, and the fix.

YAML's reader reports the position where it stopped. For an open quote, that is the next quote or
the end of the file.
"""

from __future__ import annotations

import yaml


def yaml_error_text(error: yaml.YAMLError, text: str, where: str) -> str:
    """Return one line for common mistakes of a YAML, and the reader's message for others."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{where}: not valid YAML: {error}"
    problem = getattr(error, "problem", None) or ""
    lines = text.splitlines()
    shown = lines[mark.line].strip() if mark.line < len(lines) else ""
    opened = _open_quote(text, mark)
    if opened is not None:
        line, end = opened
        until = "is never closed" if end is None else f"ends with the next one, on line {end + 1}"
        return (
            f"{where}:{line + 1}: not valid YAML: the quote that opens in `{lines[line].strip()}` "
            f"{until}. Close it on its line, or remove it."
        )
    start = f"{where}:{mark.line + 1}: not valid YAML: "
    if "'\\t'" in problem:
        return f"{start}a tab begins `{shown}`. Indent by spaces."
    if problem == "mapping values are not allowed here":
        return (
            f"{start}a second `: ` in `{shown}`, or a key below a value. Put quotes around a value "
            "that contains `: `, and give a key either a value or lines below it."
        )
    if problem.startswith("found character"):
        return f"{start}`{shown}`: {problem.removeprefix('found ')}. Put quotes around the value."
    if "escape" in problem:
        return (
            f"{start}a backslash between double quotes in `{shown}`. Use single quotes, in which "
            "it has no special meaning."
        )
    context = getattr(error, "context_mark", None)
    if problem.startswith("expected <block end>, but found '<block") and context is not None:
        return (
            f"{start}`{shown}` is not indented like line {context.line + 1} of the same section. "
            "Indent all fields of a section by the same number of spaces."
        )
    return f"{start}{error}"


def _open_quote(text: str, problem: yaml.Mark) -> tuple[int, int | None] | None:
    """Return the start and end lines (from 0) of a quote that continues up to the problem."""
    last = None
    try:
        for token in yaml.scan(text):
            if token.start_mark.index > problem.index:
                break
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                last = token
    except yaml.MarkedYAMLError as error:
        if error.context == "while scanning a quoted scalar" and error.context_mark is not None:
            return error.context_mark.line, None
    if last is not None and last.start_mark.line < last.end_mark.line == problem.line:
        return last.start_mark.line, last.end_mark.line
    return None
