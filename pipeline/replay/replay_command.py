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
from pipeline.graph.node_names import NodeName
from pipeline.replay.remote_places import check_all_mapped, check_path, read_maps
from pipeline.replay.replay import Node, NodeFailed, Replay
from pipeline.report.progress import duration
from pipeline.run.process import terminated_by_signal
from pipeline.targets.compiled_spec import CompiledSpec, rename_text
from pipeline.targets.run_parameters import given_parameters


def replay_file(
    spec: Path, *, root: Path, maps: Sequence[str] = (), parameters: Sequence[str] = ()
) -> int:
    """Replay a compiled pipeline, print its progress, and return the exit code, as in `run`.

    Args:
        spec: A file that `compile` wrote.
        root: Folder that replaces the pipeline root.
        maps: `remote prefix=local folder` for the data that the pipeline reads.
        parameters: `name=value` of the pipeline's parameters, of their declared types.

    Raises:
        ConfigError: An argument is wrong, or the file reads a remote place that is not mapped.
    """
    compiled = CompiledSpec.read(spec)
    check_path("--root", root)
    root = root.resolve()
    given = given_parameters(parameters)
    places = read_maps(compiled, maps, given.values())
    if compiled.root:
        places[compiled.root.rstrip("/")] = str(root)
    here = compiled.renamed(places)
    given = {name: rename_text(value, places) for name, value in given.items()}
    check_all_mapped(here, spec, given.values())
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    console.print(f"Replaying {compiled.name} for {compiled.target}; artifacts: {root}")

    def ended(node: Node) -> None:
        again = f", at attempt {node.attempts}" if node.attempts > 1 else ""
        console.print(f"{node.name}: done in {duration(node.seconds)}{again}")

    replay = Replay(
        here,
        root,
        parameters=given,
        on_start=lambda name: console.print(f"{name}: start"),
        on_end=ended,
        on_retry=lambda name, words: console.print(f"{name}: {words}; started again"),
    )
    if problem := _write_problem(root):
        raise ConfigError(problem)
    try:
        with terminated_by_signal():
            nodes = replay.run()
    except (NodeFailed, OSError) as failure:
        problem = _write_problem(root)
        if isinstance(failure, NodeFailed):
            console.print(f"\n{failure.name} failed:", style="bold red")
            for line in failure.last_lines():
                print(f"  {line}", file=sys.stderr)
            if failure.log:
                # How it ended: the log does not contain errors that the platform would raise.
                console.print(f"{failure.name} {failure.words}\nLog: {failure.log}")
        elif problem is None:
            raise
        if problem:
            print(problem, file=sys.stderr)
        return exit_codes.FAILED
    return _summary(nodes, replay.folder, console)


def _write_problem(root: Path) -> str | None:
    """Return why no file of a mebibyte can be written below a folder, which is created."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root) as stream:
            stream.write(bytes(2**20))
    except OSError as error:
        return (
            f"--root {root}: cannot write there ({error.strerror}). Make room for the artifacts, "
            "or name another folder that you may write to."
        )
    return None


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
