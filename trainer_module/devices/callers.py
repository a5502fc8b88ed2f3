"""Messages as lines of JSON over TCP, and a listener that waits for the first of each caller."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from typing import Any

PROTOCOL = 2
SECONDS_FOR_HELLO = 5.0
_LONGEST_LINE = 1 << 20


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Writes a message as a line of JSON."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def read(connection: socket.socket, seconds: float) -> dict[str, Any] | None:
    """Returns one message, byte by byte: what follows it stays for the next reader."""
    line = bytearray()
    deadline = time.monotonic() + seconds
    try:
        while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            byte = connection.recv(1)
            if not byte:
                return None
            line += byte
    except OSError:
        return None
    return _message(bytes(line))


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


class Callers:
    """Reads the first line of each caller, worker or not, without waiting for any single one."""

    def __init__(self, listener: socket.socket) -> None:
        """Takes a socket that listens; it stays open."""
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._read: dict[socket.socket, bytes] = {}
        self._until: dict[socket.socket, float] = {}

    def __enter__(self) -> Callers:
        """Begins to listen."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the connections that have not sent a whole line yet."""
        for connection in self._read:
            connection.close()
        self._selector.close()

    def wait(self, seconds: float) -> list[tuple[socket.socket, dict[str, Any]]]:
        """Returns the workers whose whole first message came meanwhile, each with the message."""
        found: list[tuple[socket.socket, dict[str, Any]]] = []
        for key, _ in self._selector.select(min(seconds, SECONDS_FOR_HELLO / 2)):
            if key.fileobj is self._listener:
                with contextlib.suppress(OSError):
                    connection, _ = self._listener.accept()
                    connection.setblocking(False)
                    self._read[connection] = b""
                    self._until[connection] = time.monotonic() + SECONDS_FOR_HELLO
                    self._selector.register(connection, selectors.EVENT_READ)
                continue
            assert isinstance(key.fileobj, socket.socket)
            hello = self._read_hello(key.fileobj)
            if hello is not None:
                found.append((self._release(key.fileobj), hello))
        now = time.monotonic()
        for connection in [each for each, until in self._until.items() if until < now]:
            self._release(connection).close()
        return found

    def _read_hello(self, connection: socket.socket) -> dict[str, Any] | None:
        """Reads more; returns a worker's message once it is whole, closes what is no worker."""
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        self._read[connection] += data
        line, end, _ = self._read[connection].partition(b"\n")
        if not end and data and len(line) < _LONGEST_LINE:
            return None
        hello = _message(line) if end else None
        if hello is not None and hello.get("crew") == PROTOCOL:
            with contextlib.suppress(OSError):
                send(connection, {"heard": True})
            return hello
        self._release(connection).close()
        return None

    def _release(self, connection: socket.socket) -> socket.socket:
        self._selector.unregister(connection)
        del self._read[connection], self._until[connection]
        return connection
