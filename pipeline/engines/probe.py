"""One small job before a run: do workers start, match this process and see its folders?

Each worker that the job reaches writes its description into a folder that this process created, so
a folder that is not shared is detected too. The job has a time limit, because an engine may wait
forever for a worker that cannot start.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
import threading
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.common.fingerprint import fingerprint
from shared_core.atomic_files import atomic_write

if TYPE_CHECKING:
    from apache_beam.runners.runner import PipelineResult

PACKAGES = ("apache-beam", "tfx", "tensorflow", "tensorflow-transform", "tfx-bsl")
OURS = ("pipeline", "components", "transform", "trainer_module", "shared_core")
"""Packages of this project that workers run."""

NAME = "preflight"
"""Prefix of the job's name."""

MISSING_PATH = "the worker does not see the folder"
_TOKEN = "made-by-the-submitting-process"
_ELEMENTS_PER_WORKER = 4


@dataclass(frozen=True)
class WorkerInfo:
    """The host, packages and sources of a process.

    Attributes:
        host: Host name.
        python: Python version as major.minor; pickled code depends on it.
        packages: Version by package, "none" if it is not installed.
        project: Fingerprint of this project's sources.
        unseen: Requested paths that do not exist on the host.
    """

    host: str
    python: str
    packages: dict[str, str]
    project: str
    unseen: tuple[str, ...] = ()

    @classmethod
    def current(cls, paths: Sequence[str] = ()) -> WorkerInfo:
        """Return the description of this process."""
        return cls(
            host=platform.node(),
            python=".".join(platform.python_version_tuple()[:2]),
            packages={name: _version(name) for name in PACKAGES},
            project=fingerprint(OURS),
            unseen=tuple(path for path in paths if not os.path.exists(path)),
        )


def job_name(seconds: float) -> str:
    """Return a new job name that contains the time limit, after which the job is abandoned."""
    return f"{NAME}-{seconds:.0f}s-{secrets.token_hex(4)}"


def run_probe(
    name: str,
    pipeline_args: Sequence[str],
    folder: Path,
    paths: Sequence[str],
    *,
    workers: int,
    seconds: float,
) -> list[WorkerInfo]:
    """Run the probe job.

    Args:
        name: Name of the job.
        pipeline_args: Beam's command line.
        folder: An existing folder that workers should see.
        paths: Further files and folders that workers should see.
        workers: Number of workers that the job should reach.
        seconds: Time limit in seconds. When it passes, and on Ctrl-C, Beam is asked to cancel the
            job.

    Returns:
        The description of each worker that wrote into the folder.

    Raises:
        TimeoutError: The job did not end in time.
        Exception: Any error that Beam raises if the job cannot be submitted or fails.
    """
    meeting = folder / f".{name}"
    meeting.mkdir()
    try:
        (meeting / _TOKEN).touch()
        _run_job([*pipeline_args, f"--job_name={name}"], str(meeting), paths, workers, seconds)
        found = [json.loads(file.read_text()) for file in sorted(meeting.glob("*.json"))]
    finally:
        shutil.rmtree(meeting, ignore_errors=True)
    return [WorkerInfo(**{**fields, "unseen": tuple(fields["unseen"])}) for fields in found]


def collect_worker_info(element: int, folder: str, paths: Sequence[str]) -> None:
    """Write the description of this worker into the folder; runs in a worker.

    Raises:
        FileNotFoundError: The worker does not see the folder.
    """
    if not Path(folder, _TOKEN).exists():
        raise FileNotFoundError(f"{MISSING_PATH} {Path(folder).parent} (host {platform.node()})")
    text = json.dumps(asdict(WorkerInfo.current(paths)))
    with atomic_write(Path(folder, f"{uuid.uuid4().hex}.json")) as file:
        file.write(text)


def _run_job(
    pipeline_args: Sequence[str], folder: str, paths: Sequence[str], workers: int, seconds: float
) -> None:
    results: list[PipelineResult] = []
    errors: list[BaseException] = []

    def submit_and_wait() -> None:
        try:
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions

            pipeline = beam.Pipeline(options=PipelineOptions(pipeline_args))
            _ = (
                pipeline
                | "Preflight" >> beam.Create(range(workers * _ELEMENTS_PER_WORKER))
                | "Spread" >> beam.Reshuffle()
                | "CollectWorkerInfo" >> beam.Map(collect_worker_info, folder, list(paths))
            )
            results.append(pipeline.run())
            results[0].wait_until_finish()
        except BaseException as error:
            errors.append(error)

    # In a thread, because submitting may hang as well as running.
    thread = threading.Thread(target=submit_and_wait, daemon=True, name="preflight")
    thread.start()
    timed_out = True
    try:
        thread.join(seconds)
        timed_out = thread.is_alive()
    finally:
        if timed_out:
            with contextlib.suppress(Exception):  # the job server may not answer
                for result in results:
                    result.cancel()
    if timed_out:  # not `is_alive`: the cancelled job ends the thread with another error
        raise TimeoutError(f"no end within {seconds:.0f} seconds")
    if errors:
        raise errors[0]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
