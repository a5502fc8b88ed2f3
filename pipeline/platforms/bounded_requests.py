"""HTTP requests that end: a time limit for the whole request, and a size limit for its answer.

The timeouts of urllib3 and requests apply to each read of a socket, so a server that sends a byte
now and then blocks a client forever. Here a request runs in a separate thread, from the name
look-up to the last byte of the answer, and the caller stops waiting at the limit.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

Response: TypeAlias = Any  # of urllib3 or requests
Send: TypeAlias = Callable[..., Response]
MAX_RESPONSE_BYTES = 64 * 2**20
_CHUNK_BYTES = 64 * 2**10
SOCKET_SLACK = 10.0
"""Seconds that a socket's own timeout is longer: the limit of the request ends first."""


CA_FILE = "REQUESTS_CA_BUNDLE"
"""Variable with the file of the certificates that replace the well-known ones, as of requests."""
# OpenSSL's words for an answer that is not TLS.
_PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")


class RequestTimedOut(Exception):
    """The answer did not arrive completely in time."""


class ResponseTooLarge(Exception):
    """The answer has more bytes than any answer of the API."""


def send_bounded(
    send: Send, seconds: float, raw: Send = lambda response: response
) -> tuple[Response, bytes]:
    """Send a request and read its answer, both within a time limit.

    Args:
        send: Sends the request; returns a response whose body was not read.
        seconds: Time limit in seconds for both.
        raw: Returns the urllib3 response that holds the body.

    Returns:
        The response, and its body with the content encoding removed.

    Raises:
        RequestTimedOut: The limit has passed.
        ResponseTooLarge: The body exceeds `MAX_RESPONSE_BYTES`.
        Exception: Any exception of `send`.
    """
    outcome: queue.SimpleQueue[tuple[Response, bytes, BaseException | None]] = queue.SimpleQueue()
    started: list[Response] = []

    def work() -> None:
        try:
            response = send()
            started.append(raw(response))
            outcome.put((response, _read(started[0]), None))
        except BaseException as error:  # raised again in the caller's thread
            outcome.put((None, b"", error))

    # A daemon thread, because a server that sends its headers slowly must not block the exit.
    threading.Thread(target=work, daemon=True, name="bounded-request").start()
    try:
        response, body, error = outcome.get(timeout=seconds)
    except queue.Empty:
        for each in started:
            _abort(each)
        part = "complete answer" if started else "answer"
        raise RequestTimedOut(f"no {part} within {seconds:g} s") from None
    if error is not None:
        raise error
    return response, body


def connection_fix(error: object) -> str:
    """Return the fix of a failed request as a sentence after a space; "" if it is unknown."""
    text = str(error)
    if isinstance(error, RequestTimedOut):
        return " If the server is slow, raise --timeout."
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return (
            " If a private CA signed the server's certificate, name the file of the CA (PEM): "
            f"export {CA_FILE}=/path/of/ca.pem."
        )
    if any(each in text for each in _PLAIN_HTTP):
        return " The server does not speak TLS there: use an address that begins with http://."
    return ""


def _read(response: Response) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read(_CHUNK_BYTES, decode_content=True):
        size += len(chunk)
        if size > MAX_RESPONSE_BYTES:
            response.close()
            raise ResponseTooLarge(
                f"the answer has more than {MAX_RESPONSE_BYTES // 2**20} MiB, more than any answer "
                "of this API"
            )
        chunks.append(chunk)
    response.release_conn()
    return b"".join(chunks)


def _abort(response: Response) -> None:
    """Wake the reading thread; urllib3 before 2.3 can only wait for its socket's timeout."""
    if hasattr(response, "shutdown"):
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            response.shutdown()
