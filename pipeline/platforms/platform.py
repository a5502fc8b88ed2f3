"""What `submit` needs of a platform: something to send, a run to look at, and its errors."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pipeline.config.cluster import TargetConfig
from pipeline.platforms.cron import CronSchedule
from pipeline.platforms.server_text import printable
from pipeline.report.progress import Status

RunState = Literal["running", "done", "failed", "stopped"]
ScheduleState = Literal["active", "paused", "ended"]
Say = Callable[[str], None]
"""Prints what was done, for a person."""


_LONGEST_MESSAGE = 10_000


class PlatformError(Exception):
    """The platform refuses, or does not answer; the message names the fix and is safe to print.

    Attributes:
        is_transient: Whether the same request may succeed later: a lost connection, a busy server.
    """

    def __init__(self, message: str, *, is_transient: bool = False) -> None:
        """Take a message that may quote a server."""
        super().__init__(printable(message))
        self.is_transient = is_transient


@dataclass(frozen=True)
class Submission:
    """A compiled pipeline and how it is to run.

    Attributes:
        file: what `compile` wrote.
        name: the pipeline's.
        pipeline_root: where its artifacts go; "" where the file names none.
        parameters: values of the pipeline's own parameters.
        profile: the target's section of the YAML; None where only a compiled file is known.
        run_name: what a person sees; None: the platform's way.
        experiment: what the run is grouped under; None: the platform's default.
        timeout: seconds that one request may take, from connecting to the last byte.
    """

    file: Path
    name: str
    pipeline_root: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    profile: TargetConfig | None = None
    run_name: str | None = None
    experiment: str | None = None
    timeout: float = 30.0

    @property
    def digest(self) -> str:
        """Of the file's bytes: the same pipeline has the same."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()[:12]


@dataclass(frozen=True)
class TaskNow:
    """A node of a run.

    Attributes:
        status: As of a node of a local run.
        started: Seconds since 1970; None: not yet, or unknown.
        ended: Seconds since 1970; None: not yet, or unknown.
        message: Why it failed, and where its log is; safe to print.
    """

    status: Status
    started: float | None = None
    ended: float | None = None
    message: str = ""

    def __post_init__(self) -> None:
        """Make the message safe to print."""
        object.__setattr__(self, "message", printable(self.message[:_LONGEST_MESSAGE]))


@dataclass(frozen=True)
class RunNow:
    """A run.

    Attributes:
        state: Of the whole run.
        tasks: By the nodes' names; nodes that have not started may be missing.
        message: Why it failed; safe to print.
        blessed: The Evaluator's decision on the model; None: the platform does not report it.
    """

    state: RunState
    tasks: Mapping[str, TaskNow]
    message: str = ""
    blessed: bool | None = None

    def __post_init__(self) -> None:
        """Make the message safe to print."""
        object.__setattr__(self, "message", printable(self.message[:_LONGEST_MESSAGE]))


@dataclass(frozen=True)
class Schedule:
    """A schedule on a platform: it starts a run again and again.

    Attributes:
        name: What people call it.
        schedule_id: What the platform calls it.
        cron: When it starts a run, as the platform stores it.
        state: Whether it starts runs.
        next_run: Seconds since 1970; None: unknown, or there is none.
    """

    name: str
    schedule_id: str
    cron: str
    state: ScheduleState
    next_run: float | None = None


class Scheduler(Protocol):
    """The schedules of a platform. Every method raises PlatformError if the platform refuses."""

    def list_all(self) -> list[Schedule]:
        """Return all schedules of the project or namespace."""
        ...

    def create(self, submission: Submission, cron: CronSchedule, say: Say) -> str:
        """Create a schedule named `submission.run_name`; return the address of its page."""
        ...

    def pause(self, schedule: Schedule) -> None:
        """Stop it from starting runs."""
        ...

    def resume(self, schedule: Schedule) -> None:
        """Let it start runs again."""
        ...

    def delete(self, schedule: Schedule) -> None:
        """Delete it."""
        ...


class SubmittedRun(Protocol):
    """A run that was started."""

    @property
    def page(self) -> str:
        """Where a person looks at it."""
        ...

    @property
    def stop(self) -> str:
        """A command that ends it."""
        ...

    def now(self) -> RunNow:
        """Asks the platform.

        Raises:
            PlatformError: it does not say.
        """
        ...


@contextlib.contextmanager
def without_noise() -> Iterator[None]:
    """Hide a client's warnings and its log of retries: the last failure is reported."""
    tries = logging.getLogger("urllib3.connectionpool")
    before, tries.disabled = tries.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        tries.disabled = before
