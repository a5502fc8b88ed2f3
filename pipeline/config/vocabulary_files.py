"""Read vocabulary files next to the YAML into the features.

    encode: {vocabulary: {file: towns.txt}}     one value per line, UTF-8, in the order of the ids

Transform gets the values and not the file. So every engine has them, and a changed file changes the
features, which invalidates the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import is_remote
from pipeline.config.text_files import read_text

MOST_VALUES = 200_000


def read_vocabularies(raw: JsonObject, folder: Path) -> None:
    """Replace `file` by `values` in every encoder that has one.

    Args:
        raw: The YAML; changed in place.
        folder: Base folder of relative paths.

    Raises:
        ConfigError: Names the field, the file and the fix.
    """
    for field, option in _vocabularies(raw.get("features")):
        if "file" not in option:
            continue
        if option.get("values") is not None:
            raise ConfigError(f"{field} has both file and values; remove one.")
        option["values"] = _lines(option.pop("file"), f"{field}.file", folder)


def _vocabularies(features: JsonValue) -> Iterator[tuple[str, JsonObject]]:
    for part in ("groups", "crosses"):
        entries = features.get(part) if isinstance(features, dict) else None
        for i, entry in enumerate(entries if isinstance(entries, list) else ()):
            encode = entry.get("encode") if isinstance(entry, dict) else None
            option = encode.get("vocabulary") if isinstance(encode, dict) else None
            if isinstance(option, dict):
                yield f"features.{part}.{i}.encode.vocabulary", option


def _lines(path: object, field: str, folder: Path) -> list[str]:
    if not isinstance(path, str) or not path or is_remote(path):
        raise ConfigError(
            f"{field}={path!r}: name a text file on this machine, one value per line."
        )
    file = folder / Path(path).expanduser()
    where, hint = f"{field}={path}", "Relative paths start at the folder of the YAML."
    text = read_text(file, where=where, what=str(file), hint=hint)
    values = [line for line in text.split("\n") if line]
    if not values or len(values) > MOST_VALUES:
        raise ConfigError(
            f"{where}: {file} has {len(values):,} values; give 1 to {MOST_VALUES:,}, one per line."
        )
    seen: dict[str, int] = {}
    for number, value in enumerate(values, 1):
        if value in seen:
            raise ConfigError(
                f"{where}: {file} has {value!r} twice, as values {seen[value]} and {number}; "
                "remove one."
            )
        seen[value] = number
    return values
