"""Names and JSON values of what decides where a run ends, and how two runs differ in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MOST_TOLD = 8
_LONGEST = 80


def differences(
    there: Mapping[str, Any],
    here: Mapping[str, Any],
    *,
    missing: str = "not there",
    text: str = "{name} was {there} and is {here}",
) -> list[str]:
    """Returns a text for each fact that differs: its name, what it was and what it is.

    Args:
        there: The facts of a checkpoint, as JSON gives them back; nested ones are named with dots.
        here: Those of this run.
        missing: How a fact is shown that only one of them has.
        text: What is said of each.
    """
    was, now = flat(there), flat(json.loads(json.dumps(here)))
    names = [*now, *(name for name in was if name not in now)]
    return [
        text.format(name=name, there=_shown(name, was, missing), here=_shown(name, now, missing))
        for name in names
        if name not in was or name not in now or was[name] != now[name]
    ]


def told(found: list[str]) -> str:
    """Returns the first of many differences as one text."""
    more = len(found) - _MOST_TOLD
    return "; ".join(found[:_MOST_TOLD]) + (f"; and {more} more" if more > 0 else "")


def flat(facts: Any, name: str = "") -> dict[str, Any]:
    """Returns the plain values of nested facts by their names, joined with dots."""
    if isinstance(facts, Mapping) and facts:
        return {
            path: value
            for key, each in facts.items()
            for path, value in flat(each, f"{name}.{key}" if name else str(key)).items()
        }
    return {name: facts}


def _shown(name: str, facts: Mapping[str, Any], missing: str) -> str:
    if name not in facts:
        return missing
    value = facts[name]
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
