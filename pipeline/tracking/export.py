"""Export a run that ended to an MLflow server; its results do not depend on that."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipeline.common import exit_codes
from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.report.records import (
    NodeRecord,
    failed_node,
    find_output,
    latest_run_id,
    latest_run_of,
)
from pipeline.report.summary_file import FILE as SUMMARY
from pipeline.tracking.content import git_commit, has_secrets, metrics_of, params_of
from pipeline.tracking.curves import read_curves
from pipeline.tracking.server import CHECK_SECONDS, EXPORT_SECONDS, cause_of, client_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

_PARAMS_PER_REQUEST = 100
_METRICS_PER_REQUEST = 1000
_STATUS = {
    exit_codes.DONE: "FINISHED",
    exit_codes.NOT_BLESSED: "FINISHED",
    exit_codes.FAILED: "FAILED",
    exit_codes.INTERRUPTED: "KILLED",
}
_MODEL = "model"
_SAVED_MODEL = "tf2model"


@dataclass(frozen=True)
class _Ended:
    """A run that ended.

    Attributes:
        id: Its name in ML Metadata; "" if no node started.
        records: Its finished nodes.
        summary: Its `summary.json`; None if it did not finish.
        files: Files of the run.
    """

    id: str
    records: Mapping[str, NodeRecord]
    summary: JsonObject | None
    files: Sequence[Path]


def export_run(
    config: PipelineConfig, exit_code: int, *, file: Path | None, started: float, console: Console
) -> None:
    """Export the run that just ended, if `tracking` is set; print its page, or a warning.

    Args:
        config: The configuration that ran.
        exit_code: The exit code of the run.
        file: The YAML.
        started: When it started, in seconds since the epoch.
        console: The console to print to.
    """
    if config.tracking is None:
        return
    ended = _ended(config, started)
    if exit_code in (exit_codes.DONE, exit_codes.NOT_BLESSED) and ended.summary is None:
        return  # TFX's command line only reads the pipeline: no node ran
    uri = config.tracking.mlflow
    try:
        page = _export(config, ended, _STATUS[exit_code], file=file, started=started)
    except Exception as error:  # the results of the run matter more
        logging.getLogger("absl").exception("Cannot export the run to %s.", uri)
        sentence = (
            f"Warning: the run is not exported to tracking.mlflow={uri}: {cause_of(error)}. Its "
            "results are complete here; run the same command again to export them (finished nodes "
            "are cached)."
        )
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
        return
    if file is not None and (secrets := has_secrets(config)):
        console.print(
            f"Note: {file} is not exported: {', '.join(secrets)} may be a credential.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"mlflow    {page}", markup=False, highlight=False, soft_wrap=True)


def _ended(config: PipelineConfig, started: float) -> _Ended:
    def is_new(file: Path) -> bool:
        return file.is_file() and file.stat().st_mtime >= started

    run_id = latest_run_id(config)
    with contextlib.suppress(ValueError):  # of an earlier run: this one started no node
        if datetime.fromisoformat(run_id).timestamp() < started:
            run_id = ""
    folder = Path(config.output.folder)
    summary = folder / SUMMARY
    files = [file for file in (summary, folder / "report.html") if is_new(file)]
    return _Ended(
        id=run_id,
        records=latest_run_of(config) if run_id else {},
        summary=json.loads(summary.read_text(encoding="utf-8")) if summary in files else None,
        files=files,
    )


def _export(
    config: PipelineConfig, ended: _Ended, status: str, *, file: Path | None, started: float
) -> str:
    """Return the address of the run's page on the server."""
    assert config.tracking is not None
    with client_of(config, seconds=CHECK_SECONDS) as client:
        experiment = _experiment(client, config.name)
        run = client.create_run(
            experiment,
            start_time=round(started * 1000),
            run_name=ended.id or datetime.fromtimestamp(started).isoformat(),
            tags=_tags(config, ended, file),
        ).info.run_id
    with client_of(config, seconds=EXPORT_SECONDS) as client:
        try:
            _log_numbers(client, run, config, ended)
            for each in ended.files:
                client.log_artifact(run, str(each))
            if file is not None and not has_secrets(config):
                client.log_artifact(run, str(file))
            _log_model(client, run, ended.summary)
        except Exception as error:
            with contextlib.suppress(Exception):  # the server may be gone
                client.set_tag(run, "export_error", cause_of(error))
                client.set_terminated(run, "FAILED")
            raise
        client.set_terminated(run, status)
    return f"{config.tracking.mlflow.rstrip('/')}/#/experiments/{experiment}/runs/{run}"


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return client.create_experiment(name) if found is None else found.experiment_id


def _tags(config: PipelineConfig, ended: _Ended, file: Path | None) -> dict[str, str]:
    tags = {
        "pipeline": config.name,
        "ml_metadata_run_id": ended.id,
        "verdict": ended.summary["verdict"]["result"] if ended.summary else "",
        "failed_node": failed_node(config) if ended.id and not ended.summary else "",
        "mlflow.source.git.commit": git_commit(file.resolve().parent) if file else "",
    }
    return {name: value for name, value in tags.items() if value}


def _log_numbers(client: MlflowClient, run: str, config: PipelineConfig, ended: _Ended) -> None:
    from mlflow.entities import Metric, Param

    params = [Param(name, value) for name, value in params_of(config).items()]
    for part in _parts(params, _PARAMS_PER_REQUEST):
        client.log_batch(run, params=part)
    now = round(time.time() * 1000)
    final = metrics_of(ended.summary) if ended.summary else {}
    metrics = [Metric(name, value, now, 0) for name, value in final.items()]
    trained = find_output(ended.records, NodeName.TRAINER, "model_run")
    if trained is not None:
        metrics += [
            Metric(point.name, point.value, point.time_ms, point.step)
            for point in read_curves(trained.uri)
        ]
    for part in _parts(metrics, _METRICS_PER_REQUEST):
        client.log_batch(run, metrics=part)


def _log_model(client: MlflowClient, run: str, summary: JsonObject | None) -> None:
    """Upload the pushed SavedModel in the form of MLflow's flavor `tensorflow`."""
    pushed = summary["pushed_model"] if summary else None
    if pushed is None:
        return
    from mlflow.models import Model

    description = Model(artifact_path=_MODEL, run_id=run)
    description.add_flavor("tensorflow", saved_model_dir=_SAVED_MODEL, model_type="tf2-module")
    client.log_artifacts(run, pushed, f"{_MODEL}/{_SAVED_MODEL}")
    # Last, because it makes the folder a model.
    client.log_text(run, description.to_yaml(), f"{_MODEL}/MLmodel")


def _parts(values: Iterable[Any], size: int) -> Iterable[list[Any]]:
    remaining = iter(values)
    while part := list(itertools.islice(remaining, size)):
        yield part
