"""The interface of a platform for `submit`: a submission, its run, and errors."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.cluster import TargetConfig
from pipeline.platforms.server_text import html_text, printable
from pipeline.report.progress import Status

RunState = Literal["running", "done", "failed", "stopped"]

ApiObject: TypeAlias = Any  # of KFP's or Google's client, which have no types
Say = Callable[[str], None]
"""Prints what was done, for a person."""

_LONGEST_MESSAGE = 10_000


class PlatformError(Exception):
    """The platform refuses, or does not answer; the message names the fix and is safe to print.

    Attributes:
        is_transient: Whether the same request may succeed later: a lost connection, a busy server.
    """

    def __init__(self, message: str, *, is_transient: bool = False) -> None:
        """Create an error from a message that may quote a server."""
        super().__init__(printable(message))
        self.is_transient = is_transient


@dataclass(frozen=True)
class Submission:
    """A compiled pipeline and the options of its run.

    Attributes:
        file: A file that `compile` wrote.
        name: Name of the pipeline.
        pipeline_root: Place of its artifacts; "" if the file names none.
        parameters: Values of the pipeline's parameters.
        profile: The target's section of the YAML; None if only a compiled file is known.
        run_name: The displayed name; None: the platform's default.
        experiment: The group of the run; None: the platform's default.
        timeout: Time limit of one request in seconds, from connecting to the last byte.
    """

    file: Path
    name: str
    pipeline_root: str = ""
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)
    profile: TargetConfig | None = None
    run_name: str | None = None
    experiment: str | None = None
    timeout: float = 30.0

    @property
    def digest(self) -> str:
        """A digest of the file's bytes, equal for equal pipelines."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class _WithMessage:
    message: str = ""

    def __post_init__(self) -> None:
        """Make the message safe to print."""
        object.__setattr__(self, "message", printable(self.message[:_LONGEST_MESSAGE]))


@dataclass(frozen=True)
class TaskNow(_WithMessage):
    """The current state of a node of a run.

    Attributes:
        status: Status as in a local run.
        started: Seconds since 1970; None: not yet, or unknown.
        ended: Seconds since 1970; None: not yet, or unknown.
        message: Why it failed, and where its log is; safe to print.
    """

    status: Status
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class RunNow(_WithMessage):
    """The current state of a run.

    Attributes:
        state: State of the whole run.
        tasks: State of each node by name; nodes that have not started may be missing.
        message: Why it failed; safe to print.
        blessed: The Evaluator's decision on the model; None: the platform does not report it.
    """

    state: RunState
    tasks: Mapping[str, TaskNow]
    blessed: bool | None = None


class SubmittedRun(Protocol):
    """A run that was started."""

    @property
    def page(self) -> str:
        """The address of the run's page."""
        ...

    @property
    def stop(self) -> str:
        """A command that stops the run."""
        ...

    def now(self) -> RunNow:
        """Request the state of the run from the platform.

        Raises:
            PlatformError: The platform does not report it.
        """
        ...


def json_object(url: str, body: bytes, hint: str) -> JsonObject:
    """Return the JSON object that a server answers with.

    Raises:
        PlatformError: The body is something else, such as a login page; ends with the hint.
    """
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    raise PlatformError(
        f"{url.partition('?')[0]} answers with no JSON object but "
        f"{html_text(body[:2000].decode(errors='replace'))[:80]!r}: a login page, or {hint}"
    )


@contextlib.contextmanager
def without_noise() -> Iterator[None]:
    """Hide a client's warnings and its log of retries; the last failure is reported."""
    tries = logging.getLogger("urllib3.connectionpool")
    before, tries.disabled = tries.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        tries.disabled = before
