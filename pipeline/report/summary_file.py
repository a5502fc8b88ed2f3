"""`summary.json`: the printed summary of a run, for programs.

    {"version": 1, "pipeline": "houses", "run": {"id": ..., "ended": ...}, "nodes": [...],
     "label": ..., "rows": {"train": 240, "eval": 60}, "judged_split": "eval", "metrics": {...},
     "slices": [...], "baselines": [...], "attributions": [...], "thresholds": {...},
     "verdict": {...}, "warnings": [{"what": ..., "fix": ..., "column": ..., "number": ...,
     "source": ...}], "gradient_noise_scale": null, "model": ...,
     "pushed_model": ...}

Strict JSON: an undefined number is null. docs/own-data.md describes each field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.config.evaluation import METRICS, ROWS, WEIGHTS
from pipeline.graph.node_names import NodeName
from pipeline.report import against_constant, attributions, baselines, verdict
from pipeline.report.progress import NodeState, RunState, Timing
from pipeline.report.records import NodeRecord, find_output
from pipeline.report.run_warnings import run_warnings
from pipeline.report.slices import slice_values, slices_of
from shared_core.atomic_files import atomic_write

VERSION = 1
"""Changes when a field goes or means something else; fields may be added without."""

FILE = "summary.json"

_UNITS = {
    "mean_absolute_error": "label",
    "root_mean_squared_error": "label",
    "mean_squared_error": "label^2",
    "binary_crossentropy": "nat",
    "sparse_categorical_crossentropy": "nat",
}


def write_summary(config: PipelineConfig, content: Mapping[str, JsonValue]) -> Path:
    """Write `summary.json` atomically into the output folder and return the file."""
    file = Path(config.output.folder) / FILE
    with atomic_write(file) as stream:
        json.dump(content, stream, indent=1, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
    return file


def summary_of(
    config: PipelineConfig,
    records: Mapping[str, NodeRecord],
    state: RunState,
    *,
    run_id: str,
    rows: Mapping[str, int],
    started: datetime | None = None,
    error: str = "",
) -> JsonObject:
    """Return the content of `summary.json`.

    Args:
        config: The configuration that ran.
        records: The nodes of the run.
        state: The durations of the nodes, and which were cached.
        run_id: The run's name in ML Metadata.
        rows: Number of rows of each split.
        started: The start of the run; None: now.
        error: Why the run failed; empty if it did not.
    """
    now = datetime.now().astimezone()
    stopped = next((node for node in state.nodes if node.status in ("failed", "interrupted")), None)
    names = config.evaluation.metric_names(config.label.kind)
    evaluation = _uri(records, NodeName.EVALUATOR, "evaluation")
    slices = [] if evaluation is None else _slices(config, evaluation, names)
    all_rows = next((each["metrics"] for each in slices if not each["slice"]), {})
    pushed = verdict.pushed_model(records)
    return {
        "version": VERSION,
        "pipeline": config.name,
        "run": {
            "id": run_id,
            "started": (started or now).isoformat(timespec="seconds"),
            "ended": now.isoformat(timespec="seconds"),
            "result": stopped.status if stopped is not None else "failed" if error else "done",
            "error": {"node": stopped.name if stopped else None, "message": error}
            if error
            else None,
        },
        "nodes": [
            {
                "name": node.name,
                "result": node.status,
                "seconds": round(node.seconds, 3),
                "rows": node.rows,
                "computed": _computed(node),
            }
            for node in state.nodes
        ],
        "label": {"column": config.label.column, "kind": config.label.kind},
        "rows": dict(rows),
        "judged_split": config.data.evaluation_split,
        "metrics": {
            name: {
                "value": all_rows.get(name),
                "unit": _UNITS.get(name, "1"),
                "higher_is_better": METRICS[name].higher_is_better,
            }
            for name in names
        },
        "slices": slices,
        "baselines": [
            {
                "name": each.name,
                "description": each.is_what,
                "metrics": {name: _finite(each.metrics.get(name)) for name in names},
            }
            for each in baselines.read(records)
        ],
        "attributions": _attributions(records),
        "thresholds": {
            name: threshold.model_dump() for name, threshold in config.evaluation.thresholds.items()
        },
        "verdict": _verdict(config, records, evaluation),
        # A failed run may have damaged artifacts, which are not read for it.
        "warnings": [
            each.model_dump()
            for each in (
                [*config.warnings, *state.warnings] if error else run_warnings(config, records)
            )
        ],
        "gradient_noise_scale": _noise_scale(state),
        "model": _uri(records, NodeName.TRAINER, "model"),
        "pushed_model": str(pushed) if pushed is not None and pushed.exists() else None,
    }


def _computed(node: NodeState) -> JsonObject | None:
    """Return the time and the rows of the latest run that computed the node; None if unknown."""
    if node.status == "done":
        return {"seconds": round(node.seconds, 3), "rows": node.rows}
    return None if node.computed is None else node.computed._asdict()


def last_computed(config: PipelineConfig) -> dict[str, Timing]:
    """Return how long each node last took, by the present `summary.json`; empty if it has none."""
    try:
        found = json.loads((Path(config.output.folder) / FILE).read_text(encoding="utf-8"))
        if found["pipeline"] != config.name:
            return {}
        return {
            node["name"]: Timing(float(node["computed"]["seconds"]), node["computed"]["rows"])
            for node in found["nodes"]
            if node["computed"] is not None
        }
    except (OSError, ValueError, LookupError, TypeError):  # none, an older one, or edited
        return {}


def _noise_scale(state: RunState) -> JsonObject | None:
    """Return the noise scale beside the global batch; None if this run did not measure it."""
    for node in state.nodes:
        if node.training is not None and node.training.noise_scale is not None:
            return {
                "rows": node.training.noise_scale,
                "global_batch_rows": node.training.global_batch,
            }
    return None


def _slices(config: PipelineConfig, evaluation: str, names: Sequence[str]) -> list[JsonObject]:
    weighted = config.features.weight is not None
    found = []
    for (key, _), (_, values) in zip(slices_of(evaluation), slice_values(evaluation), strict=True):
        found.append(
            {
                "slice": {str(column): _strict(value) for column, value in key},
                "rows": _count(values.get(ROWS)),
                "weights": _finite(values.get(WEIGHTS)) if weighted else None,
                "metrics": {name: _finite(values.get(name)) for name in names},
            }
        )
    return found


def _attributions(records: Mapping[str, NodeRecord]) -> list[JsonObject]:
    found = attributions.read(records)
    if found is None:
        return []
    return [
        {"column": name, "mean_absolute": size, "mean": found.mean[name]}
        for name, size in found.strongest()
    ]


def _verdict(
    config: PipelineConfig, records: Mapping[str, NodeRecord], evaluation: str | None
) -> JsonObject:
    blessing = find_output(records, NodeName.EVALUATOR, "blessing")
    if blessing is None:
        return {"result": "not judged", "reasons": []}
    result, reasons = verdict.verdict(config, records, blessing)
    found = None
    if evaluation is not None and config.evaluation.against_constant:
        found = against_constant.comparison_of(slices_of(evaluation)[0][1])
    return {
        "result": result,
        "reasons": reasons,
        "compared_with_blessed_model": "baseline_model_id" in blessing.properties,
        "against_constant": None
        if found is None
        else {
            "metric": config.evaluation.judged_by(config.label.kind),
            **{name: _finite(value) for name, value in found._asdict().items()},
        },
    }


def _uri(records: Mapping[str, NodeRecord], node: NodeName, key: str) -> str | None:
    output = find_output(records, node, key)
    return output.uri if output else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _strict(value: JsonValue) -> JsonValue:
    """Return the value of a slice; NaN and infinities, which JSON lacks, as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)
