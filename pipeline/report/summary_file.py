"""`summary.json`: the printed summary of a run, for programs. docs/scripts.md has its fields.

Strict JSON: an undefined number is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.config.evaluation import METRICS, ROWS, WEIGHTS
from pipeline.graph.node_names import NodeName
from pipeline.report.metrics import SliceMetrics
from pipeline.report.progress import RunState
from pipeline.report.result import RunResult
from shared_core.atomic_files import atomic_write

_UNITS = {
    "mean_absolute_error": "label",
    "root_mean_squared_error": "label",
    "mean_squared_error": "label^2",
    "binary_crossentropy": "nat",
    "sparse_categorical_crossentropy": "nat",
}


def write_summary(config: PipelineConfig, content: Mapping[str, JsonValue]) -> Path:
    """Write `summary.json` atomically into the output folder and return the file."""
    file = Path(config.output.folder) / "summary.json"
    with atomic_write(file) as stream:
        json.dump(content, stream, indent=1, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
    return file


def summary_of(
    run: RunResult,
    state: RunState,
    *,
    run_id: str,
    rows: Mapping[str, int],
    started: datetime | None = None,
    error: str = "",
) -> JsonObject:
    """Return the content of `summary.json`.

    `run_id` is the run's name in ML Metadata; `rows` are those of each split; without `started` it
    is now; `error` says why the run failed.
    """
    config, names = run.config, run.metric_names
    now = datetime.now().astimezone()
    stopped = next((node for node in state.nodes if node.status in ("failed", "interrupted")), None)
    pushed = run.pushed_model
    # A failed run may have damaged artifacts, which are not read for it.
    warnings = [*config.warnings, *state.warnings] if error else run.warnings
    return {
        "version": 2,  # changes when a field goes or means something else
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
        "nodes": nodes_of(state),
        "label": {"column": config.label.column, "kind": config.label.kind},
        "rows": dict(rows),
        "judged_split": config.data.evaluation_split,
        "metrics": {
            name: {
                "value": _finite(run.all_rows.values.get(name)),
                "unit": _UNITS.get(name, "1"),
                "higher_is_better": METRICS[name].higher_is_better,
            }
            for name in names
        },
        "slices": [_slice(run, each) for each in run.slices],
        "baselines": [
            {
                "name": each.name,
                "description": each.is_what,
                "metrics": {name: _finite(each.metrics.get(name)) for name in names},
            }
            for each in run.baselines
        ],
        "attributions": []
        if run.attributions is None
        else [
            {"column": name, "mean_absolute": size, "mean": run.attributions.mean[name]}
            for name, size in run.attributions.strongest()
        ],
        "thresholds": {
            name: threshold.model_dump() for name, threshold in config.evaluation.thresholds.items()
        },
        "verdict": _verdict(run),
        "warnings": [each.model_dump() for each in warnings],
        "gradient_noise_scale": _noise_scale(state),
        "model": run.uri(NodeName.TRAINER, "model"),
        "pushed_model": str(pushed) if pushed is not None and pushed.exists() else None,
    }


def nodes_of(state: RunState) -> list[JsonObject]:
    """Return name, result, seconds and rows of each node."""
    return [
        {
            "name": node.name,
            "result": node.status,
            "seconds": round(node.seconds, 3),
            "rows": node.rows,
        }
        for node in state.nodes
    ]


def _noise_scale(state: RunState) -> JsonObject | None:
    """Return the noise scale beside the global batch; None if this run did not measure it."""
    for node in state.nodes:
        if (training := node.training) is not None and training.noise_scale is not None:
            return {"rows": training.noise_scale, "global_batch_rows": training.global_batch}
    return None


def _slice(run: RunResult, metrics: SliceMetrics) -> JsonObject:
    values = metrics.values
    rows = values.get(ROWS)
    return {
        "slice": {str(column): _strict(value) for column, value in metrics.key},
        "rows": None if rows is None else round(rows),
        "weights": _finite(values.get(WEIGHTS)) if run.config.features.weight else None,
        "metrics": {name: _finite(values.get(name)) for name in run.metric_names},
    }


def _verdict(run: RunResult) -> JsonObject:
    if run.verdict is None:
        return {"result": "not judged", "reasons": []}
    result, reasons = run.verdict
    constant = run.against_constant
    return {
        "result": result,
        "reasons": reasons,
        "compared_with_blessed_model": run.compared_with_blessed,
        "against_constant": None
        if constant is None
        else {
            "metric": run.judged_by,
            **{name: _finite(value) for name, value in constant._asdict().items()},
        },
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _strict(value: JsonValue) -> JsonValue:
    """Return the value of a slice; NaN and infinities, which JSON lacks, as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
