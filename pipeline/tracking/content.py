"""Parameters, metrics and tags of a run, under names and in lengths that MLflow accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.common.secret_checks import looks_secret
from pipeline.config.config import PipelineConfig
from pipeline.report.run_changes import leaves

# mlflow.utils.validation: the limits of an MLflow server.
MAX_KEY = 250
MAX_VALUE = 6000
_ILLEGAL = re.compile(r"[^\w.\- :/]")
_LEFT_OUT = "(left out: {})"
# They have no effect on a run on this machine.
_ELSEWHERE = {"cluster", "tracking"}


def params_of(config: PipelineConfig) -> dict[str, str]:
    """Return the set fields of a configuration: dotted path -> value as text.

    Lists of values are one JSON text. Texts are cut to MLflow's limit, and values that look like
    credentials are left out.
    """
    values = config.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_ELSEWHERE)
    return _named(
        (key.replace("/", "_"), _param_text(key, value))
        for key, value in leaves(values)
        if value not in ([], {})
    )


def has_secrets(config: PipelineConfig) -> list[str]:
    """Return the fields of a configuration that look like credentials."""
    values = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [key for key, value in leaves(values) if _why_secret(key, value)]


def metrics_of(summary: JsonObject) -> dict[str, float]:
    """Return the final metrics of `summary.json`; undefined ones are left out.

    `<split>/<metric>`, `<split>/<metric>/<column>:<value>` of a slice, `baseline/<name>/<metric>`,
    `rows/<split>` and `seconds/<node>`.
    """
    return _named((key, value) for key, value in _metrics(summary) if value is not None)


def _metrics(summary: JsonObject) -> Iterator[tuple[str, float | None]]:
    split = summary["judged_split"]
    for each in summary["slices"]:
        # A slash within would be another level in MLflow's page.
        parts = [f"{column}:{value}".replace("/", "_") for column, value in each["slice"].items()]
        for name, value in each["metrics"].items():
            yield "/".join([split, name, *parts]), value
    for each in summary["baselines"]:
        for name, value in each["metrics"].items():
            yield f"baseline/{each['name']}/{name}", value
    for split, rows in summary["rows"].items():
        yield f"rows/{split}", rows
    for node in summary["nodes"]:
        yield f"seconds/{node['name']}", node["seconds"]


def _param_text(key: str, value: JsonValue) -> str:
    if reason := _why_secret(key, value):
        return _LEFT_OUT.format(reason)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _why_secret(key: str, value: JsonValue) -> str | None:
    """Return why a leaf looks like a credential; None if it does not."""
    for each in value if isinstance(value, list) else [value]:
        name, text = key.rpartition(".")[2], str(each)
        if text.startswith("--"):  # an option of Beam
            name, _, text = text.removeprefix("--").partition("=")
        if isinstance(each, str) and (reason := looks_secret(name, text)):
            return reason
    return None


def _named(values: Iterable[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return the values under legal names that differ."""
    found: dict[str, JsonValue] = {}
    for key, value in values:
        legal = _ILLEGAL.sub("_", key)[:MAX_KEY].strip() or "_"
        name, number = legal, 1
        while name in found:
            number += 1
            name = f"{legal[: MAX_KEY - 5]}_{number}"
        found[name] = value
    return found
