"""The message of code that failed inside Beam, without the layers around it."""

from __future__ import annotations

import re

# `Pipeline <job> failed in state FAILED: java.io.IOException: <the engine's message>`
_JOB_FAILED = re.compile(r"Pipeline \S+ failed in state \w+: (?:[\w.$]+(?:Exception|Error): )*")

_NAMED_JOB_FAILED = re.compile(r"Pipeline (?P<name>\S+)_[0-9a-f-]{36} failed in state \w+: ")
"""Prefix of the message of a job on a job server: `<job's name>_<uuid>`."""


def error_message(error: BaseException) -> str:
    """Return the message of the failed code, without the layers around it.

    Beam repeats the whole traceback inside the message of the exception that it raises, followed
    by `[while running '<step>']`.

    Args:
        error: The exception that Beam raised.
    """
    while error.__cause__ is not None and "[while running" not in str(error):
        error = error.__cause__
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        last = text.rpartition("\n  File ")[2]
        # Below the last frame: its source line (indented), then the message up to the end.
        lines = last.splitlines()[1:]
        while lines and (lines[0].startswith("    ") or not lines[0].strip()):
            lines.pop(0)
        text = "\n".join(lines).strip() or text
    elif found := _JOB_FAILED.match(text):
        text = text[found.end() :]
    else:
        text = f"{type(error).__name__}: {text}"
    return text.partition(" [while running")[0].strip()
