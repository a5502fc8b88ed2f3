"""The output of a replay: a line per node while it runs, and a summary at the end."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.common.object_stores import register_file_systems
from pipeline.graph.node_names import NodeName
from pipeline.replay.execution import Host
from pipeline.replay.node_command import on_this_machine
from pipeline.replay.node_environment import NO_CREDENTIALS, Credentials
from pipeline.replay.object_stores import object_store
from pipeline.replay.remote_places import check_all_mapped, check_path, read_maps
from pipeline.replay.replay import Node, NodeFailed, Replay
from pipeline.report.progress import duration
from pipeline.run.interrupts import terminated_by_signal
from pipeline.targets.compiled_spec import CompiledSpec, rename_text
from pipeline.targets.run_parameters import given_parameters

_PROBED_BYTES = 2**20


def replay_file(
    spec: Path,
    *,
    root: Path,
    maps: Sequence[str] = (),
    parameters: Sequence[str] = (),
    remote: bool = False,
    lenient: bool = False,
) -> int:
    """Replay a compiled pipeline and print its progress.

    Args:
        spec: A file that `compile` wrote.
        root: Folder that replaces the pipeline root.
        maps: `remote prefix=local folder` for the data that the pipeline reads.
        parameters: `name=value` of the pipeline's parameters, of their declared types.
        remote: Use the artifacts and unmapped data at the places in the file, with this machine's
            credentials.
        lenient: Run nodes of Kubeflow without a simulated driver and launcher.

    Returns:
        The exit code, as in `run`.

    Raises:
        ConfigError: The file is not a compiled pipeline, or reads a remote place that is not
            mapped, or a folder of `maps` does not exist.
    """
    compiled = CompiledSpec.read(spec)
    check_path("--root", root)
    root = root.resolve()
    given = given_parameters(parameters)
    places = read_maps(compiled, maps, given.values())
    if compiled.root and not remote:
        places[compiled.root.rstrip("/")] = str(root)
    here = compiled.renamed(places)
    given = {name: rename_text(value, places) for name, value in given.items()}
    if remote:
        register_file_systems(compiled.root)
    else:
        check_all_mapped(here, spec, given.values())
    credentials = Credentials.of_this_machine() if remote else NO_CREDENTIALS
    place = compiled.root.rstrip("/") if remote else str(root)
    has_launcher = compiled.target == "kubeflow" and not lenient
    host = Host(on_this_machine, credentials, object_store(place) if has_launcher else None, place)
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    console.print(f"Replaying {compiled.name} for {compiled.target}; artifacts: {place}")
    nodes: list[Node] = []

    def ended(node: Node) -> None:
        nodes.append(node)
        if node.state == "skipped":
            console.print(f"{node.name}: skipped, since {node.why}")
            return
        again = f", at attempt {node.attempts}" if node.attempts > 1 else ""
        console.print(f"{node.name}: done in {duration(node.seconds)}{again}")

    replay = Replay(
        here,
        root,
        remote=compiled.root if remote else None,
        parameters=given,
        host=host,
        on_start=lambda name: console.print(f"{name}: start"),
        on_end=ended,
        on_retry=lambda name, words: console.print(f"{name}: {words}; started again"),
    )
    if problem := _write_problem(root):
        raise ConfigError(problem)
    try:
        with terminated_by_signal():
            replay.run()
    except NodeFailed as failure:
        console.print(f"\n{failure.name} failed:", style="bold red")
        for line in failure.last_lines():
            print(f"  {line}", file=sys.stderr)
        if failure.log:
            # How it ended: the log does not contain errors that the platform would raise.
            console.print(f"{failure.name} {failure.words}\nLog: {failure.log}")
        if problem := _write_problem(root):
            print(problem, file=sys.stderr)
        return exit_codes.FAILED
    except OSError:
        if (problem := _write_problem(root)) is None:
            raise
        print(problem, file=sys.stderr)
        return exit_codes.FAILED
    return _summary(nodes, replay.place, console)


def _write_problem(root: Path) -> str | None:
    """Return why no file of a mebibyte can be written below a folder, which is created."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root) as stream:
            stream.write(bytes(_PROBED_BYTES))
    except OSError as error:
        return (
            f"--root {root}: cannot write there ({error.strerror}). Make room for the artifacts, "
            "or name another folder that you may write to."
        )
    return None


def _summary(nodes: Sequence[Node], place: str, console: Console) -> int:
    table = Table(box=None, pad_edge=False)
    for title in ("node", "time", "outputs"):
        table.add_column(title)
    for node in nodes:
        outputs = [key for key, found in node.artifacts.items() if found["artifacts"]]
        took = "skipped" if node.state == "skipped" else duration(node.seconds)
        table.add_row(node.name, took, ", ".join(outputs))
    console.print()
    console.print(table)
    console.print(f"\noutputs: {place}/NODE/OUTPUT")
    blessing = _artifact(nodes, NodeName.EVALUATOR, "blessing")
    if blessing is None:
        return exit_codes.DONE
    compared = _artifact(nodes, NodeName.LATEST_BLESSED_MODEL, "model")
    has_baseline = compared is not None and _exists(f"{compared['uri']}/Format-Serving")
    against = "the latest blessed model" if has_baseline else "nothing: none was blessed before"
    blessed = _exists(f"{blessing['uri']}/BLESSED")
    console.print(f"{'blessed' if blessed else 'not blessed'}; compared with {against}")
    if pushed := _pushed_to(nodes):
        console.print(f"pushed to {pushed}")
    return exit_codes.DONE if blessed else exit_codes.NOT_BLESSED


def _pushed_to(nodes: Sequence[Node]) -> str | None:
    pushed = _artifact(nodes, NodeName.PUSHER, "pushed_model")
    return pushed["metadata"].get("pushed_destination") if pushed else None


def _exists(path: str) -> bool:
    if "://" not in path:
        return Path(path).exists()
    from tensorflow.io import gfile  # takes seconds; only for remote places

    return gfile.exists(path)


def _artifact(nodes: Sequence[Node], start: str, key: str) -> JsonObject | None:
    """Return the output of that key from a node whose name has that prefix (a resolver is two)."""
    for node in nodes:
        if node.name.startswith(start) and node.artifacts.get(key, {}).get("artifacts"):
            return node.artifacts[key]["artifacts"][0]
    return None
