"""Remote folders that a compiled pipeline reads, and the local folders of `replay --map`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.targets.compiled_spec import CompiledSpec, names_place
from pipeline.targets.long_values import expand
from pipeline.targets.run_parameters import name_and_value

_REMOTE = re.compile(r"\b(?:gs|s3|minio)://[^\s\"'\\]+")
# What has a meaning in the JSON texts, placeholders, variables and globs of a compiled file.
_NOT_IN_FILES = re.compile(r"[\"\\*?\[\x00-\x1f\x7f]|\{\{|\$[$(]")
_SPLIT = re.compile(r"[*?\[{]")  # a wildcard or {SPAN} ends the plain folder


def _folders_read(compiled: CompiledSpec) -> list[str]:
    """Return the remote folders that a pipeline reads, except its root, sorted and without `/`.

    A path with wildcards counts as the folder before the first one, a file as its folder. No folder
    is below another.
    """
    root = compiled.root.rstrip("/")
    found = {
        _folder(path)
        for text in _constants([compiled.spec, compiled.parameters])
        for path in _REMOTE.findall(text)
        if not (root and names_place(path, root))
    }
    inner = {each for each in found for other in found if each.startswith(f"{other}/")}
    return sorted(found - inner)


def map_options(compiled: CompiledSpec) -> str:
    """Return the `--map` options that a replay of this pipeline needs, as a template."""
    return " ".join(f"--map {folder}=FOLDER" for folder in _folders_read(compiled))


def check_path(option: str, folder: Path) -> None:
    """Check that the values in a compiled file can contain the path of a folder."""
    if found := _NOT_IN_FILES.search(str(folder.resolve())):
        raise ConfigError(
            f"{option} {str(folder)!r}: the path {str(folder.resolve())!r} has {found[0]!r}, which "
            "the values in a compiled file cannot contain. Name a folder whose path has no "
            "quotation mark, backslash, line break, wildcard (* ? [), `{{`, `$$` or `$(`."
        )


def read_maps(
    compiled: CompiledSpec, texts: Sequence[str], given: Iterable[str] = ()
) -> dict[str, str]:
    """Return the absolute local folder of each remote prefix, which has no trailing slash.

    Args:
        compiled: The pipeline to replay.
        texts: Values of `--map`: `remote prefix=local folder`.
        given: Values of this run's parameters.
    """
    places = {}
    spec = json.dumps([compiled.spec, compiled.parameters, *given])
    spec += "\n".join(_constants(compiled.spec))  # includes compressed texts
    for text in texts:
        prefix, local = name_and_value(text, "--map", "s3://bucket/data=./data")
        prefix, folder = prefix.rstrip("/"), Path(local).expanduser()
        if not folder.is_dir():
            wrong = "is not a folder" if folder.exists() else "does not exist"
            raise ConfigError(
                f"--map {text}: {folder} {wrong} (looked for {folder.resolve()}). Name the folder "
                f"that holds a copy of what is below {prefix}."
            )
        check_path("--map", folder)
        if not names_place(spec, prefix):
            needed = map_options(compiled) or "no --map, as it reads only from its pipeline root"
            raise ConfigError(
                f"--map {text}: the pipeline reads nothing below {prefix}. Use {needed}."
            )
        places[prefix] = str(folder.resolve())
    return places


def check_all_mapped(compiled: CompiledSpec, spec: Path, given: Iterable[str] = ()) -> None:
    """Check that a pipeline, whose places are mapped, reads no remote place."""
    texts = [*_constants([compiled.spec, compiled.parameters]), *given]
    if left := _REMOTE.search(" ".join(texts)):
        raise ConfigError(
            f"--spec {spec}: the pipeline reads {left[0]}, which is not on this machine. Name the "
            f"folder that holds a copy of it with --map {_folder(left[0])}=FOLDER."
        )


def _folder(path: str) -> str:
    """Return the folder of a path: up to a wildcard, and without the name of a file."""
    scheme, _, rest = path.partition("://")
    parts = rest.rstrip("/").split("/")
    plain = next((i for i, part in enumerate(parts) if _SPLIT.search(part)), len(parts))
    if plain == len(parts) > 1 and PurePosixPath(parts[-1]).suffix and not path.endswith("/"):
        plain -= 1
    return f"{scheme}://{'/'.join(parts[: max(plain, 1)])}"


def _constants(node: JsonValue) -> Iterator[str]:
    """Yield the texts of constant parameters: the places that nodes read and write."""
    if isinstance(node, dict):
        for key, each in node.items():
            if key not in ("image", "args", "description"):
                yield from _constants(each)
    elif isinstance(node, list):
        for each in node:
            yield from _constants(each)
    elif isinstance(node, str):
        yield expand(node)
