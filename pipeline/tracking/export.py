"""Export a run that ended to an MLflow server; its results do not depend on that."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.report.curves import curves_of
from pipeline.report.records import find_output, run_by_id
from pipeline.report.run_record import CONFIG, PAGE, SUMMARY, RunRecord
from pipeline.tracking.content import has_secrets, metrics_of, params_of
from pipeline.tracking.server import CHECK_SECONDS, EXPORT_SECONDS, cause_of, client_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

_PARAMS_PER_REQUEST = 100
_METRICS_PER_REQUEST = 1000
_STATUS = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
_MODEL = "model"
_SAVED_MODEL = "tf2model"


def export_run(
    config: PipelineConfig,
    record: RunRecord,
    *,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Export a run that ended, if its configuration has `tracking`.

    Args:
        config: The configuration that ran.
        record: The record of the run.
        say: Prints the address of the run's page on the server.
        warn: Prints that the run is not exported, or what of it.
    """
    if config.tracking is None:
        return
    uri = config.tracking.mlflow
    secrets = has_secrets(config)
    try:
        address = _export(config, record, with_settings=not secrets)
    except Exception as error:  # the results of the run matter more
        logging.getLogger("absl").exception("Cannot export the run to %s.", uri)
        warn(
            f"Warning: the run is not exported to tracking.mlflow={uri}: {cause_of(error)}. Its "
            "results are complete here; run the same command again to export them (finished nodes "
            "are cached)."
        )
        return
    if secrets:
        warn(
            f"Note: {CONFIG} and {PAGE} are not exported: {', '.join(secrets)} may be a credential."
        )
    say(f"mlflow    {address}")


def _export(config: PipelineConfig, record: RunRecord, *, with_settings: bool) -> str:
    """Return the address of the run's page on the server."""
    assert config.tracking is not None
    with client_of(config, seconds=CHECK_SECONDS) as client:
        experiment = _experiment(client, config.name)
        run = client.create_run(
            experiment,
            start_time=_milliseconds(record, "started"),
            run_name=record.name,
            tags=_tags(record.summary),
        ).info.run_id
    with client_of(config, seconds=EXPORT_SECONDS) as client:
        try:
            _log_numbers(client, run, config, record)
            for name in (SUMMARY, CONFIG, PAGE) if with_settings else (SUMMARY,):
                if (record.folder / name).is_file():
                    client.log_artifact(run, str(record.folder / name))
            _log_model(client, run, record.summary)
        except Exception as error:
            with contextlib.suppress(Exception):  # the server may be gone
                client.set_tag(run, "export_error", cause_of(error))
                client.set_terminated(run, "FAILED")
            raise
        client.set_terminated(
            run, _STATUS[record.summary["run"]["result"]], _milliseconds(record, "ended")
        )
    return f"{config.tracking.mlflow.rstrip('/')}/#/experiments/{experiment}/runs/{run}"


def _milliseconds(record: RunRecord, time: str) -> int:
    return round(datetime.fromisoformat(record.summary["run"][time]).timestamp() * 1000)


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return client.create_experiment(name) if found is None else found.experiment_id


def _tags(summary: JsonObject) -> dict[str, str]:
    run = summary["run"]
    tags = {
        "pipeline": summary["pipeline"],
        "ml_metadata_run_id": run["id"],
        "verdict": summary["verdict"]["result"] if run["result"] == "done" else None,
        "failed_node": run["error"]["node"] if run["error"] else None,
        "mlflow.source.git.commit": summary["made_by"].get("git commit"),
    }
    return {name: value for name, value in tags.items() if value}


def _log_numbers(client: MlflowClient, run: str, config: PipelineConfig, record: RunRecord) -> None:
    from mlflow.entities import Metric, Param

    params = [Param(name, value) for name, value in params_of(config).items()]
    for part in _parts(params, _PARAMS_PER_REQUEST):
        client.log_batch(run, params=part)
    ended = _milliseconds(record, "ended")
    metrics = [Metric(name, value, ended, 0) for name, value in metrics_of(record.summary).items()]
    nodes = run_by_id(config, record.summary["run"]["id"])
    trained = find_output(nodes, NodeName.TRAINER, "model_run")
    for curve in curves_of(Path(trained.uri)) if trained is not None else ():
        name = f"training/{curve.split}/{curve.name}"
        metrics += [
            Metric(name, value, ended, step)
            for step, value in zip(curve.steps, curve.values, strict=True)
        ]
    for part in _parts(metrics, _METRICS_PER_REQUEST):
        client.log_batch(run, metrics=part)


def _log_model(client: MlflowClient, run: str, summary: JsonObject) -> None:
    """Upload the pushed SavedModel in the form of MLflow's flavor `tensorflow`."""
    pushed = summary["pushed_model"]
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
