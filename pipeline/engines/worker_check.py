"""Are an engine's workers like this process, and do they see its folders? Asked by a tiny job."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.config.config import ConfigError, PipelineConfig, is_remote
from pipeline.config.presets import Flink, JobServerEngine
from pipeline.data.data_sources import files
from pipeline.engines.failures import diagnose, first_error, words
from pipeline.engines.probe import (
    NAME,
    UNSEEN,
    InterruptedProbeError,
    NoAnswerError,
    Surroundings,
    run_probe,
)
from pipeline.flink.flink_rest import FlinkError, cancel_job, cancel_jobs

_CANCEL_SECONDS = 10.0
"""Time for a job that is just being submitted to arrive, so that it can be cancelled."""
_OVERDUE_SECONDS = 30.0


def check_workers(config: PipelineConfig, engine: JobServerEngine) -> None:
    """Runs the tiny job and compares what its workers say with this process.

    Raises:
        ConfigError: the job did not come back or failed, a worker has other packages than this
            process, or does not see a folder.
    """
    root = Path(config.pipeline_root)
    root.mkdir(parents=True, exist_ok=True)
    workers = engine.parallelism if isinstance(engine, Flink) else 1
    name = f"beam.engine={engine.name}, environment={engine.environment}"
    try:
        found = run_probe(
            engine.pipeline_args(),
            root,
            [path for _, path in _paths(config)],
            workers=workers,
            seconds=engine.probe_seconds,
        )
    except NoAnswerError as error:
        raise ConfigError(
            f"{name}: a first tiny job did not come back ({error}; beam.probe_seconds). "
            f"{_where_to_look(engine)} {_what_became_of(error.job_name, engine)}"
        ) from None
    except InterruptedProbeError as error:
        _what_became_of(error.job_name, engine)
        raise
    except ConfigError:
        raise
    except Exception as error:  # whatever Beam makes of the engine's words
        raise ConfigError(f"{name}: {_why_it_failed(error, config, engine)}") from None
    if not found:
        raise ConfigError(
            f"output.folder={config.output.folder}: workers write there, but not into the folder "
            "that this process sees. Use one that is shared with the engine's machines."
        )
    for worker in found:
        _compare(worker, config, name)


def _compare(worker: Surroundings, config: PipelineConfig, name: str) -> None:
    here = Surroundings.here()
    differences = []
    if worker.python != here.python:
        differences.append(f"Python {worker.python}, here it is {here.python}")
    differences += [
        f"{package} {worker.packages.get(package)}, here it is {version}"
        for package, version in here.packages.items()
        if worker.packages.get(package) != version
    ]
    if worker.project != here.project:
        differences.append("other sources of this project than this process")
    if differences:
        raise ConfigError(
            f"{name}: a worker on {worker.host} has {'; '.join(differences)}. Workers need the "
            "packages of this environment: start the worker pool from it "
            "(`python -m pipeline worker-pool`), or build the image from its lock file."
        )
    for field, path in _paths(config):
        if path in worker.unseen:
            raise ConfigError(
                f"{field}={path}: a worker on {worker.host} does not see it. Put it where the "
                "engine's machines find it under the same name."
            )


def _paths(config: PipelineConfig) -> Iterator[tuple[str, str]]:
    """Files and folders that workers read or write, by field."""
    for field in ("path", "eval_path"):
        value = getattr(config.data, field)
        if value and not is_remote(value):
            yield f"data.{field}", str(files(value, f"data.{field}")[0])
    yield "output.folder", config.output.folder


def _why_it_failed(error: Exception, config: PipelineConfig, engine: JobServerEngine) -> str:
    text = f"{first_error(error, engine)}\n{error}"
    if found := diagnose(error, engine):
        return f"{found.words} `{found.mend}` mends it." if found.mend else found.words
    if UNSEEN in text:
        return (
            f"workers do not see output.folder={config.output.folder}. Use a folder that is shared "
            "with the engine's machines under the same name."
        )
    if "No module named" in text:
        module = text.partition("No module named ")[2].split("'")[1]
        return (
            f"workers lack the Python module {module!r}. Start the worker pool from this "
            "environment and this folder (`python -m pipeline worker-pool`)."
        )
    return f"a first tiny job failed: {words(error, engine)}"


def cancel_left_over(rest: str) -> list[str]:
    """Cancels tiny jobs for which nobody waits any more: those of runs that were killed.

    Returns:
        Their names.

    Raises:
        FlinkError: Flink does not answer.
    """

    def overdue(job: Mapping[str, Any]) -> bool:
        limit = re.fullmatch(rf"{NAME}-(\d+)s-\w+", job["name"])
        return bool(limit) and job["duration"] / 1000 > int(limit[1]) + _OVERDUE_SECONDS

    return cancel_jobs(rest, overdue)


def _what_became_of(job: str, engine: JobServerEngine) -> str:
    """Frees the slots that the next run needs, where that is possible."""
    if isinstance(engine, Flink) and engine.rest:
        deadline = time.monotonic() + _CANCEL_SECONDS
        with contextlib.suppress(FlinkError):
            while not (cancelled := cancel_job(engine.rest, job)) and time.monotonic() < deadline:
                time.sleep(0.5)
            if cancelled:
                return f"The job {job} is cancelled."
            return f"Flink has no job {job}: it did not get as far."
    return f"The engine may still have the job {job}: cancel it there."


def _where_to_look(engine: JobServerEngine) -> str:
    page = "Flink's web page shows what the job waits for. " if isinstance(engine, Flink) else ""
    if engine.environment == "loopback":
        return (
            f"{page}The engine's machines must reach this process: environment: loopback is for an "
            "engine on this machine."
        )
    if engine.environment == "external":
        return (
            f"{page}Is there a worker pool at {engine.worker_pool} beside each of the engine's "
            "machines, with a Python that has Beam? `python -m pipeline worker-pool` is one."
        )
    return (
        f"{page}Can the engine's machines start {engine.worker_image}? To pull an image takes "
        "longer the first time."
    )
