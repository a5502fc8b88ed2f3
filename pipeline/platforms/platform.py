"""The interface of a platform for `submit`: a submission, its run, and errors safe to print."""

from __future__ import annotations

import contextlib
import hashlib
import html
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pipeline.common.json_types import JsonValue
from pipeline.config.cluster import TargetConfig
from pipeline.report.progress import Status

RunState = Literal["running", "done", "failed", "stopped"]
ApiObject: TypeAlias = Any  # of KFP's or Google's client, which have no types
Say = Callable[[str], None]
"""Prints what was done, for a person."""

CA_FILE = "REQUESTS_CA_BUNDLE"
"""Variable with the file of the certificates that replace the well-known ones, as of requests."""

# OpenSSL's words for an answer that is not TLS.
_PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")


class PlatformError(Exception):
    """The platform refuses, or does not answer; the message names the fix and is safe to print.

    Attributes:
        status: Of HTTP; 0 if there is none.
        is_transient: Whether the same request may succeed later: a lost connection, a busy server.
    """

    def __init__(self, message: str, *, is_transient: bool = False, status: int = 0) -> None:
        """Create an error from a message that may quote a server."""
        super().__init__(printable(message))
        self.is_transient, self.status = is_transient, status


@dataclass(frozen=True)
class Submission:
    """A compiled pipeline and the options of its run; None: the platform's default."""

    file: Path
    name: str
    pipeline_root: str = ""
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)
    profile: TargetConfig | None = None  # the target's section, if a YAML is known
    run_name: str | None = None
    experiment: str | None = None
    timeout: float = 30.0  # in seconds, for connecting and for each wait for the server

    @property
    def digest(self) -> str:
        """A digest of the file's bytes, equal for equal pipelines."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class _WithMessage:
    message: str = ""

    def __post_init__(self) -> None:
        """Make the message safe to print."""
        object.__setattr__(self, "message", printable(self.message[:10_000]))


@dataclass(frozen=True)
class TaskNow(_WithMessage):
    """The current state of a node of a run; times in seconds since 1970, None if unknown."""

    status: Status
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class RunNow(_WithMessage):
    """The current state of a run; nodes that have not started may be missing from `tasks`.

    `blessed` is the Evaluator's decision on the model; None if the platform does not report it.
    """

    state: RunState
    tasks: Mapping[str, TaskNow]
    blessed: bool | None = None


@dataclass(frozen=True)
class SubmittedRun:
    """A run that was started.

    Attributes:
        page: The address of its page.
        stop: A command that stops it.
        now: Requests its state; raises a PlatformError if the platform does not report it.
    """

    page: str
    stop: str
    now: Callable[[], RunNow]


def printable(text: str) -> str:
    r"""Return text without credentials in URLs, and control characters as escapes (`\x1b`)."""
    text = without_credentials(text).replace("\r\n", "\n").replace("\t", "    ")
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def without_credentials(text: str) -> str:
    """Return text with `user:password@` removed from every URL in it."""
    return re.sub(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/?#\s]*@", r"\1", text)


def one_line(value: object) -> str:
    """Return a value as one line of at most 600 characters."""
    return " ".join(str(value).split())[:600]


def error_text(body: bytes | str | None) -> str:
    """Return the message in the body of an error, JSON or HTML, as one line; "" without any."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return one_line(html.unescape(re.sub(r"<[^<>]*>", " ", text[:20_000])))
    for key in ("error", "message"):
        content = content.get(key, content) if isinstance(content, dict) else content
    return one_line(content) if isinstance(content, str) else ""


def connection_error(action: str, error: object, place: str) -> PlatformError:
    """Return the error for a request without an answer; `place` says where the request went."""
    text, fix = one_line(error), ""
    if "timed out" in text:
        fix = " If the server is slow, raise --timeout."
    elif "CERTIFICATE_VERIFY_FAILED" in text:
        fix = (
            " If a private CA signed the server's certificate, name the file of the CA (PEM): "
            f"export {CA_FILE}=/path/of/ca.pem."
        )
    elif any(each in text for each in _PLAIN_HTTP):
        fix = " The server does not speak TLS there: use an address that begins with http://."
    return PlatformError(f"cannot {action}: no answer ({text}).{fix} {place}", is_transient=True)


def refusal(
    action: str, status: int, text: str, fixes: Mapping[int, str], if_busy: str
) -> PlatformError:
    """Return the error for an HTTP status, with its fix; the fix for other statuses has key 0."""
    is_busy = status >= 500 or status == 429
    fix = if_busy if is_busy else fixes.get(status, fixes.get(0, ""))
    message = f"cannot {action}: {status} {text}".rstrip(". ")
    return PlatformError(f"{message}. {fix}".rstrip(), is_transient=is_busy, status=status)


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
