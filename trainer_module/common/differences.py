"""Compare two records of names and JSON values, such as the fingerprints of two runs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainer_module.common.tensors import Json

_MOST_SHOWN = 8
_LONGEST = 80


def differences(
    there: Mapping[str, Json],
    here: Mapping[str, Json],
    *,
    missing: str = "not there",
    text: str = "{name} was {there} and is {here}",
) -> list[str]:
    """Return a text with name and both values for each value that differs.

    `there` is of a checkpoint or another worker, parsed from JSON; nested names are joined with
    dots.
    """
    was, now = flat(there), flat(json.loads(json.dumps(here)))
    names = [*now, *(name for name in was if name not in now)]
    return [
        text.format(
            name=name, there=_value_text(name, was, missing), here=_value_text(name, now, missing)
        )
        for name in names
        if name not in was or name not in now or was[name] != now[name]
    ]


def summarize_differences(found: list[str]) -> str:
    """Return a text with the first differences and the number of the others."""
    more = len(found) - _MOST_SHOWN
    return "; ".join(found[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def flat(facts: Json, name: str = "") -> dict[str, Json]:
    """Return the plain values of a nested record by name, joined with dots."""
    if isinstance(facts, Mapping) and facts:
        return {
            path: value
            for key, each in facts.items()
            for path, value in flat(each, f"{name}.{key}" if name else str(key)).items()
        }
    return {name: facts}


def _value_text(name: str, facts: Mapping[str, Json], missing: str) -> str:
    if name not in facts:
        return missing
    value = facts[name]
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
