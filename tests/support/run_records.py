"""Records of runs without a run: what the page and the list of runs read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from pipeline.report.run_record import CONFIG, RUNS, SUMMARY, RunRecord

SETTINGS: dict[str, Any] = {
    "name": "houses",
    "data": {"source": "csv", "path": "/data/houses.csv"},
    "features": {
        "groups": [{"name": "sizes", "columns": ["area"], "scale": "z_score"}],
        "label": {"column": "price", "kind": "regression"},
    },
    "training": {"epochs": 5},
    "evaluation": {"metrics": ["mean_absolute_error"]},
    "output": {"folder": "/elsewhere"},
}
SUMMARY_OF_A_RUN: dict[str, Any] = {
    "version": 1,
    "pipeline": "houses",
    "run": {
        "id": "2026-01-31T10:00:00.5",
        "started": "2026-01-31T10:00:00+00:00",
        "ended": "2026-01-31T10:01:30+00:00",
        "result": "done",
        "error": None,
    },
    "nodes": [
        {"name": "StatisticsGen", "result": "done", "seconds": 2.0, "rows": 300},
        {"name": "Trainer", "result": "cached", "seconds": 0.5, "rows": 300},
    ],
    "label": {"column": "price", "kind": "regression"},
    "rows": {"train": 240, "eval": 60},
    "judged_split": "eval",
    "metrics": {"mean_absolute_error": {"value": 2.5, "unit": "label", "higher_is_better": False}},
    "slices": [
        {"slice": {}, "rows": 60, "weights": None, "metrics": {"mean_absolute_error": 2.5}},
        {
            "slice": {"city": "Oslo"},
            "rows": 1,
            "weights": None,
            "metrics": {"mean_absolute_error": None},
        },
    ],
    "baselines": [
        {
            "name": "constant",
            "description": "always 12",
            "metrics": {"mean_absolute_error": 4.0},
        }
    ],
    "attributions": [],
    "thresholds": {
        "mean_absolute_error": {"lower_bound": None, "upper_bound": 3.0, "max_loss": None}
    },
    "verdict": {
        "result": "blessed",
        "reasons": [],
        "compared_with_blessed_model": False,
        "against_constant": None,
    },
    "warnings": [],
    "gradient_noise_scale": None,
    "model": "/elsewhere/artifacts/Trainer/model/8",
    "pushed_model": None,
    "made_by": {"command": "python -m pipeline run houses.yaml", "python": "3.11.2"},
}


def write(
    folder: Path,
    name: str,
    *,
    settings: dict[str, Any] | None = None,
    **summary: Any,
) -> RunRecord:
    """Writes the record of a run below an output folder.

    Args:
        folder: The output folder.
        name: Name of the run.
        settings: Sections of the configuration that replace those of `SETTINGS`.
        **summary: Fields of the summary that replace those of `SUMMARY_OF_A_RUN`.
    """
    record = folder / RUNS / name
    record.mkdir(parents=True)
    (record / CONFIG).write_text(json.dumps({**SETTINGS, **(settings or {})}))
    found = {**copy.deepcopy(SUMMARY_OF_A_RUN), **summary}
    (record / SUMMARY).write_text(json.dumps(found))
    return RunRecord(record)


def failed(node: str, message: str) -> dict[str, Any]:
    """Returns the fields of a summary of a run that failed before it evaluated a model."""
    run = {
        **SUMMARY_OF_A_RUN["run"],
        "result": "failed",
        "error": {"node": node, "message": message},
    }
    verdict = {**SUMMARY_OF_A_RUN["verdict"], "result": "not judged"}
    metrics = {name: {**each, "value": None} for name, each in SUMMARY_OF_A_RUN["metrics"].items()}
    return {"run": run, "verdict": verdict, "metrics": metrics, "slices": [], "baselines": []}
