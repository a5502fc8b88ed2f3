"""What `submit` needs of a platform: something to send, a run to look at, and errors in words."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pipeline.config.cluster import TargetConfig
from pipeline.report.progress import Status

RunState = Literal["running", "done", "failed", "stopped"]


class PlatformError(Exception):
    """The platform does not take, or does not say, what it is asked; in words, with the fix.

    Attributes:
        passes: whether asking again may help: a connection that broke, a server that is busy.
    """

    def __init__(self, words: str, *, passes: bool = False) -> None:
        """Takes what is told to a person."""
        super().__init__(words)
        self.passes = passes


@dataclass(frozen=True)
class Submission:
    """A compiled pipeline and how it is to run.

    Attributes:
        file: what `compile` wrote.
        name: the pipeline's.
        parameters: values of the pipeline's own parameters.
        profile: the target's section of the YAML; None where only a compiled file is known.
        run_name: what a person sees; None: the platform's way.
        experiment: what the run is grouped under; None: the platform's default.
        timeout: seconds that one request may take.
    """

    file: Path
    name: str
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
        status: as of a node of a local run.
        started: seconds since 1970; None: not yet, or not told.
        ended: seconds since 1970; None: not yet, or not told.
        words: why it failed, and where more is said.
    """

    status: Status
    started: float | None = None
    ended: float | None = None
    words: str = ""


@dataclass(frozen=True)
class RunNow:
    """A run.

    Attributes:
        state: of the whole.
        tasks: by the nodes' names; those that have not started may lack.
        words: why it failed.
        blessed: what the Evaluator says of the model; None where the platform does not tell.
    """

    state: RunState
    tasks: Mapping[str, TaskNow]
    words: str = ""
    blessed: bool | None = None


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
    """Leaves out a client's warnings, and what it says of each try: the last is told in words."""
    tries = logging.getLogger("urllib3.connectionpool")
    before, tries.disabled = tries.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        tries.disabled = before
