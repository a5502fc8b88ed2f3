"""Export a run that ended to an MLflow server; its results do not depend on that."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pipeline.common.errors import ConfigError, first_line
from pipeline.common.json_types import JsonObject
from pipeline.common.secret_checks import looks_secret
from pipeline.config.config import PipelineConfig
from pipeline.report.run_list import leaves
from pipeline.report.run_record import CONFIG, PAGE, SUMMARY, RunRecord

_SETTINGS = {  # of MLflow, which reads them at each request; those of the user are used instead
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # reports to MLflow's makers
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_MAX_KEY, _PER_REQUEST = 250, 1000  # limits of an MLflow server: mlflow.utils.validation
_STATUS = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def _client(uri: str) -> Any:
    try:
        from mlflow import MlflowClient
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"tracking.mlflow={uri}: the package {error.name} is not installed. Run `uv pip "
            "install 'tfx-largebatch[mlflow]'`, or run without it: --set tracking=null"
        ) from None
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    return MlflowClient(tracking_uri=uri)


def check_server(config: PipelineConfig) -> None:
    """Raise ConfigError if the server of `tracking.mlflow` does not answer, or without mlflow."""
    if config.tracking is None:
        return
    uri = config.tracking.mlflow
    client = _client(uri)
    try:
        client.get_experiment_by_name(config.name)
    except Exception as error:
        raise ConfigError(
            f"tracking.mlflow={uri}: the MLflow server cannot be used ({_cause(error)}). Start it, "
            "correct the URI or the login, or run without it: --set tracking=null"
        ) from None


def export_run(
    config: PipelineConfig,
    record: RunRecord,
    *,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Export a run that ended, if its configuration has `tracking`.

    `say` prints the address of the run's page on the server, `warn` what is not exported.
    """
    if config.tracking is None:
        return
    uri = config.tracking.mlflow
    secrets = _secrets_of(config)
    try:
        place = _export(_client(uri), config.name, record, with_settings=not secrets)
    except Exception as error:  # the results of the run matter more
        logging.getLogger("absl").exception("Cannot export the run to %s.", uri)
        warn(
            f"Warning: the run is not exported to tracking.mlflow={uri}: {_cause(error)}. Its "
            "results are complete here; run the same command again to export them (finished nodes "
            "are cached)."
        )
        return
    if secrets:
        warn(
            f"Note: {CONFIG} and {PAGE} are not exported: {', '.join(secrets)} may be a credential."
        )
    say(f"mlflow    {uri.rstrip('/')}/#/experiments/{place}")


def _export(client: Any, name: str, record: RunRecord, *, with_settings: bool) -> str:
    """Return the run's place on the server."""
    from mlflow.entities import Metric

    run = record.summary["run"]
    started, ended = (
        round(datetime.fromisoformat(run[key]).timestamp() * 1000) for key in ("started", "ended")
    )
    experiment = client.get_experiment_by_name(name)
    place = experiment.experiment_id if experiment else client.create_experiment(name)
    tags = {
        "pipeline": record.summary["pipeline"],
        "ml_metadata_run_id": run["id"],
        "verdict": record.summary["verdict"]["result"] if run["result"] == "done" else None,
        "failed_node": run["error"]["node"] if run["error"] else None,
        "mlflow.source.git.commit": record.summary["made_by"].get("git commit"),
    }
    tags = {name: value for name, value in tags.items() if value}
    new = client.create_run(place, start_time=started, run_name=record.name, tags=tags)
    run_id = new.info.run_id
    metrics = [Metric(*each, ended, 0) for each in _metrics_of(record.summary).items()]
    for start in range(0, len(metrics), _PER_REQUEST):
        client.log_batch(run_id, metrics=metrics[start : start + _PER_REQUEST])
    for file in (SUMMARY, CONFIG, PAGE) if with_settings else (SUMMARY,):
        if (record.folder / file).is_file():
            client.log_artifact(run_id, str(record.folder / file))
    client.set_terminated(run_id, _STATUS[run["result"]], ended)
    return f"{place}/runs/{run_id}"


def _secrets_of(config: PipelineConfig) -> list[str]:
    """Return the fields of a configuration that look like credentials."""
    found = []
    for key, value in leaves(config.model_dump(mode="json", by_alias=True, exclude_none=True)):
        for each in value if isinstance(value, list) else [value]:
            name, text = key.rpartition(".")[2], str(each)
            if text.startswith("--"):  # an option of Beam
                name, _, text = text.removeprefix("--").partition("=")
            if isinstance(each, str) and looks_secret(name, text):
                found.append(key)
    return found


def _metrics_of(summary: JsonObject) -> dict[str, float]:
    """Return the final metrics of `summary.json`; undefined ones are left out.

    `<split>/<metric>`, `<split>/<metric>/<column>:<value>` of a slice, `baseline/<name>/<metric>`,
    `rows/<split>` and `seconds/<node>`.
    """
    metrics = []
    for each in summary["slices"]:
        # A slash within would be another level in MLflow's page.
        parts = [f"{column}:{value}".replace("/", "_") for column, value in each["slice"].items()]
        for name, value in each["metrics"].items():
            metrics.append(("/".join([summary["judged_split"], name, *parts]), value))
    for each in summary["baselines"]:
        metrics += [(f"baseline/{each['name']}/{n}", value) for n, value in each["metrics"].items()]
    metrics += [(f"rows/{split}", rows) for split, rows in summary["rows"].items()]
    metrics += [(f"seconds/{node['name']}", node["seconds"]) for node in summary["nodes"]]
    named: dict[str, float] = {}
    for name, value in metrics:
        if value is not None:
            legal = re.sub(r"[^\w.\- :/]", "_", name)[:_MAX_KEY].strip() or "_"
            key, number = legal, 1
            while key in named:
                number += 1
                key = f"{legal[: _MAX_KEY - 5]}_{number}"
            named[key] = value
    return named


def _cause(error: BaseException) -> str:
    """Return the reason of a failed request: the system's, or else MLflow's first line."""
    first, below = error, error
    while below := below.__cause__ or below.__context__:
        if isinstance(below, OSError) and below.errno and below.strerror:
            return below.strerror
        if isinstance(below, TimeoutError):
            return "no answer in time"
    return first_line(first)
