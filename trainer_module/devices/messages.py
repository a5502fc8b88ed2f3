"""Send messages as lines of JSON over TCP, and read the first message of new connections."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time

from trainer_module.common.json_values import Json

Message = dict[str, Json]

PROTOCOL = 4  # value of "protocol" in a worker's first message
SECONDS_FOR_HELLO = 5.0
_LONGEST_LINE = 1 << 20


def send(connection: socket.socket, message: Message) -> None:
    """Send a message as a line of JSON."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def read(connection: socket.socket, seconds: float) -> Message | None:
    """Return one message, read byte by byte: the next reader gets what follows it."""
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
    return _parse(bytes(line))


def _parse(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


class PendingConnections:
    """Read the first line of each connection, of a worker or not, without waiting for any one."""

    def __init__(self, listener: socket.socket) -> None:
        """Use a listening socket, which stays open."""
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._read: dict[socket.socket, bytes] = {}
        self._until: dict[socket.socket, float] = {}

    def __enter__(self) -> PendingConnections:
        """Start to accept connections."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections that have not sent a whole line yet."""
        for connection in self._read:
            connection.close()
        self._selector.close()

    def wait(self, seconds: float) -> list[tuple[socket.socket, Message]]:
        """Return the workers whose first message is complete, each with the message."""
        found: list[tuple[socket.socket, Message]] = []
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

    def _read_hello(self, connection: socket.socket) -> Message | None:
        """Read more; return a worker's complete message, close the connection of a non-worker."""
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
        hello = _parse(line) if end else None
        if hello is not None and hello.get("protocol") == PROTOCOL:
            with contextlib.suppress(OSError):
                send(connection, {"heard": True})
            return hello
        self._release(connection).close()
        return None

    def _release(self, connection: socket.socket) -> socket.socket:
        self._selector.unregister(connection)
        del self._read[connection], self._until[connection]
        return connection
