"""`features explain`: what a finished run did with each column, with its fitted numbers.

The chains and the number of values come from the run's transform graph, the number of rows from its
statistics; both are read, nothing is computed from the data again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from pipeline.common.errors import ConfigError
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.report.records import NodeRecord, find_output, latest_run, latest_run_of

if TYPE_CHECKING:
    from transform.output.chains import Chain, ChainStep

TRAIN_SPLIT = "train"
SHOWN_VALUES = 4  # of a list, in the table; --json has all of them
PIPE_WIDTH = 160
_SHORT = {"standard_deviation": "std", "lower_quartile": "q25", "upper_quartile": "q75"}


@dataclass(frozen=True)
class Explained:
    """A column's chain, and how many of the train split's rows lack a value.

    `missing` is a share in [0, 1]; None where the run's statistics are gone, or its transform graph
    is of a version that did not count the values of encoded columns.
    """

    chain: Chain
    missing: float | None


def explain_columns(records: Mapping[str, NodeRecord]) -> list[Explained]:
    """Reads the chains of a run.

    Args:
        records: the nodes of the run (`latest_run`).

    Raises:
        ConfigError: the run has no finished Transform, its artifact is gone, or it was made by
            another `preprocessing_fn`.
    """
    from transform import column_chains

    graph = find_output(records, NodeName.TRANSFORM, "transform_graph")
    if graph is None:
        raise ConfigError(
            "the latest run has no finished Transform; run `python -m pipeline run` until it has"
        )
    if not Path(graph.uri).is_dir():
        raise ConfigError(
            f"the run's transform graph is gone from {graph.uri}; run it again with "
            "--set metadata.cache=false"
        )
    try:
        chains = column_chains(graph.uri)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    rows = _rows(records)
    return [
        Explained(chain, 1.0 - chain.count / rows if rows and chain.count is not None else None)
        for chain in chains
    ]


def run_of_config(config: PipelineConfig) -> dict[str, NodeRecord]:
    """The latest run of a configuration.

    Raises:
        ConfigError: it has not run here.
    """
    records = latest_run_of(config)
    if not records:
        raise ConfigError(
            f"pipeline {config.name} has not run yet: {config.metadata_path} has no run of it; "
            "run it first, with `python -m pipeline run --config ...`"
        )
    return records


def run_of_folder(folder: Path) -> dict[str, NodeRecord]:
    """The latest run in an output folder.

    Raises:
        ConfigError: the folder holds none.
    """
    metadata = folder / "metadata.sqlite"
    if not metadata.is_file():
        raise ConfigError(
            f"--run={folder}: no metadata.sqlite there; name the output.folder of a run, or use "
            "--config"
        )
    records = latest_run(metadata)
    if not records:
        raise ConfigError(f"--run={folder}: its metadata.sqlite has no run with a finished node")
    return records


def show(explained: Sequence[Explained], *, as_json: bool) -> None:
    """Prints a table, or JSON with every number in full."""
    if as_json:
        print(json.dumps([_record(one) for one in explained], indent=1, allow_nan=False))
        return
    console = Console(emoji=False)
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH, emoji=False)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("column", overflow="fold")
    table.add_column("group", overflow="fold")
    table.add_column("missing", justify="right", no_wrap=True)
    table.add_column("chain", overflow="fold")
    table.add_column("becomes", overflow="fold")
    for one in explained:
        chain = one.chain
        table.add_row(
            *(chain.column, chain.group),
            "-" if one.missing is None else f"{one.missing:.2%}",
            "\n".join(map(step_text, chain.steps)),
            _several(chain.outputs, ", "),
        )
    # Column names are the user's: brackets in them are no markup.
    console.print(table, markup=False, highlight=False)


def step_text(step: ChainStep) -> str:
    """One line: `scale z_score: mean 11.8, std 11.5`."""
    parts = []
    for name, value in step.numbers.items():
        if name == "note":
            parts.append(str(value))
        elif value is not None:
            label = _SHORT.get(name, name).replace("quantile_", "q").replace("_", " ")
            parts.append(f"{'' if name == 'value' else label + ' '}{_text(value)}")
    return f"{step.name} {step.kind}" + (f": {', '.join(parts)}" if parts else "")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"[{_several([_text(one) for one in value], ', ')}]"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _several(values: Sequence[str], separator: str) -> str:
    more = len(values) - SHOWN_VALUES
    if more <= 1:
        return separator.join(values)
    return separator.join([*values[: SHOWN_VALUES - 1], f"... {more + 1} more"])


def _record(one: Explained) -> dict[str, Any]:
    record = asdict(one.chain)
    return {**record, "missing": one.missing}


def _rows(records: Mapping[str, NodeRecord]) -> int | None:
    """Rows of the train split."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    output = find_output(records, NodeName.STATISTICS_GEN, "statistics")
    file = Path(output.uri) / f"Split-{TRAIN_SPLIT}" / "FeatureStats.pb" if output else None
    if file is None or not file.is_file():
        return None
    parsed = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read_bytes())
    return parsed.datasets[0].num_examples
