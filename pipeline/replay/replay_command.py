"""`python -m pipeline replay`: places of this machine for remote ones, and the printed output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.table import Table

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.graph.node_names import NodeName
from pipeline.replay.replay import Node, NodeFailed, Replay
from pipeline.report.progress import duration
from pipeline.run.process import terminated_by_signal
from pipeline.targets.compiled_spec import CompiledSpec, names_place, rename_text
from pipeline.targets.long_values import expand
from pipeline.targets.run_parameters import given_parameters, name_and_value

_REMOTE = re.compile(r"\b(?:gs|s3|minio)://[^\s\"'\\]+")
# What has a meaning in the JSON texts, placeholders, variables and globs of a compiled file.
_NOT_IN_FILES = re.compile(r"[\"\\*?\[\x00-\x1f\x7f]|\{\{|\$[$(]")
_SPLIT = re.compile(r"[*?\[{]")  # a wildcard or {SPAN} ends the plain folder


def replay_file(
    spec: Path, *, root: Path, maps: Sequence[str] = (), parameters: Sequence[str] = ()
) -> int:
    """Replay a file that `compile` wrote, print its progress, and return the exit code of `run`.

    Args:
        spec: The file.
        root: Folder that replaces the pipeline root.
        maps: `remote prefix=local folder` for the data that the pipeline reads.
        parameters: `name=value` of the pipeline's parameters, of their declared types.

    Raises:
        ConfigError: An argument is wrong, or the file reads a remote place that is not mapped.
    """
    compiled = CompiledSpec.read(spec)
    _check_path("--root", root)
    root = root.resolve()
    given = given_parameters(parameters)
    places = _read_maps(compiled, maps, given.values())
    if compiled.root:
        places[compiled.root.rstrip("/")] = str(root)
    here = compiled.renamed(places)
    given = {name: rename_text(value, places) for name, value in given.items()}
    _check_all_mapped(here, spec, given.values())
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    console.print(f"Replaying {compiled.name} for {compiled.target}; artifacts: {root}")
    replay = Replay(here, root, parameters=given, say=console.print)
    try:
        with terminated_by_signal():
            nodes = replay.run()
    except NodeFailed as failure:
        console.print(f"\n{failure.name} failed:", style="bold red")
        for line in failure.last_lines():
            print(f"  {line}", file=sys.stderr)
        if failure.log:
            # How it ended: the log does not contain errors that the platform would raise.
            console.print(f"{failure.name} {failure.words}\nLog: {failure.log}")
        return exit_codes.FAILED
    except OSError as error:
        print(
            f"--root {root}: cannot write there ({error}). Make room for the artifacts, "
            "or name another folder that you may write to.",
            file=sys.stderr,
        )
        return exit_codes.FAILED
    return _summary(nodes, replay.folder, console)


def _summary(nodes: Sequence[Node], folder: Path, console: Console) -> int:
    table = Table("node", "time", "outputs", box=None, pad_edge=False)
    for node in nodes:
        outputs = [key for key, found in node.artifacts.items() if found["artifacts"]]
        table.add_row(node.name, duration(node.seconds), ", ".join(outputs))
    console.print()
    console.print(table)
    console.print(f"\noutputs: {folder}/NODE/OUTPUT")
    blessing = _artifact(nodes, NodeName.EVALUATOR, "blessing")
    if blessing is None:
        return exit_codes.DONE
    compared = _artifact(nodes, NodeName.LATEST_BLESSED_MODEL, "model")
    has_baseline = compared is not None and Path(compared["uri"], "Format-Serving").exists()
    against = "the latest blessed model" if has_baseline else "nothing: none was blessed before"
    blessed = Path(blessing["uri"], "BLESSED").exists()
    console.print(f"{'blessed' if blessed else 'not blessed'}; compared with {against}")
    pushed = _artifact(nodes, NodeName.PUSHER, "pushed_model")
    if pushed and (place := pushed["metadata"].get("pushed_destination")):
        console.print(f"pushed to {place}")
    return exit_codes.DONE if blessed else exit_codes.NOT_BLESSED


def _artifact(nodes: Sequence[Node], start: str, key: str) -> JsonObject | None:
    """Return the output of that key from a node whose name has that prefix (a resolver is two)."""
    found = [node.artifacts.get(key) for node in nodes if node.name.startswith(start)]
    return next((each["artifacts"][0] for each in found if each and each["artifacts"]), None)


def map_options(compiled: CompiledSpec) -> str:
    """Return the `--map` options that a replay of this pipeline needs, as a template.

    One for each of the outermost remote folders that the pipeline reads, except its root.
    """
    root = compiled.root.rstrip("/")
    found = {
        _folder(path)
        for text in _constants([compiled.spec, compiled.parameters])
        for path in _REMOTE.findall(text)
        if not (root and names_place(path, root))
    }
    inner = {each for each in found for other in found if each.startswith(f"{other}/")}
    return " ".join(f"--map {folder}=FOLDER" for folder in sorted(found - inner))


def _check_path(option: str, folder: Path) -> None:
    if character := _NOT_IN_FILES.search(str(folder.resolve())):
        raise ConfigError(
            f"{option} {str(folder)!r}: its path has {character[0]!r}, which the values in a "
            "compiled file cannot contain. Name a folder whose path has no quotation mark, "
            "backslash, line break, wildcard (* ? [), `{{`, `$$` or `$(`."
        )


def _read_maps(
    compiled: CompiledSpec, texts: Sequence[str], given: Iterable[str] = ()
) -> dict[str, str]:
    """Return the local folder of each remote prefix of `--map`, which has no trailing slash."""
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
        _check_path("--map", folder)
        if not names_place(spec, prefix):
            needed = map_options(compiled) or "no --map, as it reads only from its pipeline root"
            raise ConfigError(
                f"--map {text}: the pipeline reads nothing below {prefix}. Use {needed}."
            )
        places[prefix] = str(folder.resolve())
    return places


def _check_all_mapped(compiled: CompiledSpec, spec: Path, given: Iterable[str] = ()) -> None:
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
