"""Describe what a finished run did with each column, with fitted numbers, for its page.

The chains and the number of values come from the run's transform graph, the number of rows from its
statistics. The data are not read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.report.records import Nodes, find_output, latest_run_of
from pipeline.report.split_statistics import TRAIN_SPLIT, read_statistics

if TYPE_CHECKING:
    from transform.chains import Chain, ChainStep

_SHOWN_VALUES = 4  # of a list
_SHORT = {"standard_deviation": "std", "lower_quartile": "q25", "upper_quartile": "q75"}


@dataclass(frozen=True)
class Explained:
    """A column's chain, and its share of missing values in the train split, None if unknown."""

    chain: Chain
    missing: float | None


def explain_columns(records: Nodes) -> list[Explained]:
    """Read the chains of a run, of the nodes that `latest_run` returns.

    Raises:
        ConfigError: The run has no finished Transform, its artifact is missing, or another
            `preprocessing_fn` wrote it.
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
    output = find_output(records, NodeName.STATISTICS_GEN, "statistics")
    train = read_statistics(Path(output.uri)).get(TRAIN_SPLIT) if output else None
    rows = train.rows if train else None
    return [
        Explained(chain, 1.0 - chain.count / rows if rows and chain.count is not None else None)
        for chain in chains
    ]


def run_of_config(config: PipelineConfig) -> Nodes:
    """Return the latest run of a configuration.

    Raises:
        ConfigError: The configuration has not run here.
    """
    records = latest_run_of(config)
    if not records:
        raise ConfigError(
            f"pipeline {config.name} has not run yet: {config.metadata_path} has no run of it; "
            "run it first, with `python -m pipeline run --config ...`"
        )
    return records


def step_text(step: ChainStep) -> str:
    """Return a step as one line: `scale z_score: mean 11.8, std 11.5`."""
    parts = []
    for name, value in step.numbers.items():
        if name == "note":
            parts.append(str(value))
        elif value is not None:
            label = _SHORT.get(name, name).replace("quantile_", "q").replace("_", " ")
            parts.append(f"{'' if name == 'value' else label + ' '}{_text(value)}")
    return f"{step.name} {step.kind}" + (f": {', '.join(parts)}" if parts else "")


def _text(value: JsonValue) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"[{_several([_text(one) for one in value], ', ')}]"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _several(values: Sequence[str], separator: str) -> str:
    more = len(values) - _SHOWN_VALUES
    if more <= 1:
        return separator.join(values)
    return separator.join([*values[: _SHOWN_VALUES - 1], f"... {more + 1} more"])
