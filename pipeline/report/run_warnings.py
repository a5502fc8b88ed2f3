"""All warnings of a run, in one list: for the terminal, `summary.json` and the page."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from pipeline.config.config import PipelineConfig
from pipeline.config.evaluation import FEW_JUDGED, ROWS
from pipeline.graph.node_names import NodeName
from pipeline.report import baselines
from pipeline.report.records import NodeRecord, find_output, read_text
from pipeline.report.slices import slice_values
from pipeline.report.too_good import too_good
from shared_core.run_warning import RunWarning
from trainer_module.checks.warn_once import FILE


def run_warnings(config: PipelineConfig, records: Mapping[str, NodeRecord]) -> list[RunWarning]:
    """Return the warnings of `init` that the YAML keeps, of nodes, and about the metrics."""
    return [
        *config.warnings,
        *cautions(records),
        *_of_normalization(records),
        *_of_training(records),
        *_of_metrics(config, records),
    ]


def cautions(records: Mapping[str, NodeRecord]) -> list[RunWarning]:
    """Return Transform's warnings."""
    graph = find_output(records, NodeName.TRANSFORM, "transform_graph")
    if graph is None or not Path(graph.uri).is_dir():
        return []
    return _column_cautions(graph.uri)


@functools.lru_cache(maxsize=1)  # a run needs them three times, and reading them loads a SavedModel
def _column_cautions(uri: str) -> list[RunWarning]:
    from transform import column_cautions

    return column_cautions(uri)


def _of_normalization(records: Mapping[str, NodeRecord]) -> list[RunWarning]:
    """Return the violated limits with which the run continued (`on_failure: warn`)."""
    report = find_output(records, NodeName.NORMALIZATION_VALIDATOR, "report")
    text = read_text(report, "report.json")
    return [
        RunWarning(
            what=each["message"].rstrip("."),
            fix="Correct the column's scaling in features, or the limits",
            column=each["column"],
            number=each["value"],
            source=NodeName.NORMALIZATION_VALIDATOR,
        )
        for each in (json.loads(text)["violations"] if text else ())
    ]


def _of_training(records: Mapping[str, NodeRecord]) -> list[RunWarning]:
    text = read_text(find_output(records, NodeName.TRAINER, "model_run"), FILE)
    texts = json.loads(text) if text else []
    return [RunWarning(what=each.rstrip("."), source=NodeName.TRAINER) for each in texts]


def _of_metrics(config: PipelineConfig, records: Mapping[str, NodeRecord]) -> list[RunWarning]:
    evaluation = find_output(records, NodeName.EVALUATOR, "evaluation")
    if evaluation is None:
        return []
    kind = config.label.kind
    values = dict(slice_values(evaluation.uri)).get("", {})
    shown = {n: values[n] for n in config.evaluation.metric_names(kind) if n in values}
    found = baselines.read(records)
    return [
        *baselines.worse_than_baselines(config.evaluation.judged_by(kind), shown, found),
        *too_good(shown, baselines.read_all(records)),
        *few_rows(values.get(ROWS, FEW_JUDGED), config.data.evaluation_split),
    ]


def few_rows(rows: float, split: str) -> list[RunWarning]:
    """Return a warning if so few rows were evaluated that the metrics are unreliable."""
    if rows >= FEW_JUDGED:
        return []
    return [
        RunWarning(
            what="the metrics are unreliable: only "
            + ("1 row" if rows == 1 else f"{rows:.0f} rows")
            + " evaluated",
            fix=f"Evaluate {FEW_JUDGED} rows or more: add rows, or enlarge the split {split}",
            number=rows,
            source=NodeName.EVALUATOR,
        )
    ]
