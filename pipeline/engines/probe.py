"""A first, tiny job: can the engine start workers, are they like us, do they see our folders?

Each worker that the job reaches writes what it is into a folder that this process made; so a
folder that is not shared is noticed, too.
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
from typing import Any

from pipeline.common.fingerprint import fingerprint
from pipeline.common.whole_files import whole_file

PACKAGES = ("apache-beam", "tfx", "tensorflow", "tensorflow-transform", "tfx-bsl")
OURS = ("pipeline", "components", "transform", "trainer_module")
"""Packages of this project that workers run."""

NAME = "preflight"
"""How the job's name begins."""

UNSEEN = "the worker does not see the folder"
_TOKEN = "made-by-the-submitting-process"
_ELEMENTS_PER_WORKER = 4


@dataclass(frozen=True)
class ProcessFacts:
    """What a process runs on, as it says itself."""

    host: str
    python: str  # major.minor: what pickled code depends on
    packages: dict[str, str]  # name -> version, "none" where it is not installed
    project: str  # fingerprint of this project's sources
    unseen: tuple[str, ...] = ()  # paths that it was asked for and does not see

    @classmethod
    def here(cls, paths: Sequence[str] = ()) -> ProcessFacts:
        """Those of this process."""
        return cls(
            host=platform.node(),
            python=".".join(platform.python_version_tuple()[:2]),
            packages={name: _version(name) for name in PACKAGES},
            project=fingerprint(OURS),
            unseen=tuple(path for path in paths if not os.path.exists(path)),
        )


class InterruptedProbeError(KeyboardInterrupt):
    """Ctrl-C while the job ran."""

    def __init__(self, job_name: str) -> None:
        """Names the job, as the engine calls it."""
        super().__init__()
        self.job_name = job_name
        """As of NoAnswerError."""


class NoAnswerError(Exception):
    """The job did not end in time."""

    def __init__(self, seconds: float, job_name: str) -> None:
        """Names the job, as the engine calls it, and the seconds that it was given."""
        super().__init__(f"no end within {seconds:.0f} seconds")
        self.job_name = job_name
        """The job as the engine calls it; it may still wait there."""


def run_probe(
    pipeline_args: Sequence[str],
    folder: Path,
    paths: Sequence[str],
    *,
    workers: int,
    seconds: float,
) -> list[ProcessFacts]:
    """Runs the job.

    Args:
        pipeline_args: Beam's command line.
        folder: an existing folder that workers should see.
        paths: further files and folders that workers should see.
        workers: how many workers the job should reach.
        seconds: how long it may take.

    Returns:
        What each worker said, at least one.

    Raises:
        NoAnswerError: it took longer. The job server was asked to cancel the job.
        InterruptedProbeError: Ctrl-C. As above.
        Exception: what Beam raises when the job cannot be submitted or fails.
    """
    # Its limit in its name: whoever finds it later knows whether somebody still waits for it.
    name = f"{NAME}-{seconds:.0f}s-{secrets.token_hex(4)}"
    meeting = folder / f".{name}"
    meeting.mkdir()
    try:
        (meeting / _TOKEN).touch()
        job = _Job(name, pipeline_args, meeting, paths, workers)
        job.run(seconds)
        said = [json.loads(file.read_text()) for file in sorted(meeting.glob("*.json"))]
    finally:
        shutil.rmtree(meeting, ignore_errors=True)
    return [ProcessFacts(**{**fields, "unseen": tuple(fields["unseen"])}) for fields in said]


def look_around(element: int, folder: str, paths: Sequence[str]) -> None:
    """What the job does, in a worker."""
    if not Path(folder, _TOKEN).exists():
        raise FileNotFoundError(f"{UNSEEN} {Path(folder).parent} (host {platform.node()})")
    seen = json.dumps(asdict(ProcessFacts.here(paths)))
    with whole_file(Path(folder, f"{uuid.uuid4().hex}.json")) as file:
        file.write(seen)


class _Job:
    """The job in a thread of its own, because submitting may hang as well as running."""

    def __init__(
        self,
        name: str,
        pipeline_args: Sequence[str],
        folder: Path,
        paths: Sequence[str],
        workers: int,
    ) -> None:
        self._name = name
        self._args = [*pipeline_args, f"--job_name={name}"]
        self._look = {"folder": str(folder), "paths": list(paths)}
        self._elements = workers * _ELEMENTS_PER_WORKER
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self, seconds: float) -> None:
        thread = threading.Thread(target=self._submit_and_wait, daemon=True, name="preflight")
        thread.start()
        try:
            thread.join(seconds)
        except KeyboardInterrupt:
            self._cancel()
            raise InterruptedProbeError(self._name) from None
        if thread.is_alive():
            self._cancel()
            raise NoAnswerError(seconds, self._name)
        if self._error is not None:
            raise self._error

    def _cancel(self) -> None:
        if self._result is not None:
            with contextlib.suppress(Exception):  # the job server may be what does not answer
                self._result.cancel()

    def _submit_and_wait(self) -> None:
        try:
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions

            pipeline = beam.Pipeline(options=PipelineOptions(self._args))
            _ = (
                pipeline
                | "Preflight" >> beam.Create(range(self._elements))
                | "Spread" >> beam.Reshuffle()
                | "LookAround" >> beam.Map(look_around, **self._look)
            )
            self._result = pipeline.run()
            self._result.wait_until_finish()
        except BaseException as error:
            self._error = error


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
