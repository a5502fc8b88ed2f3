"""Whether somebody listens at an address."""

from __future__ import annotations

import contextlib
import socket


def unreachable(address: str, seconds: float) -> str:
    """Why nobody answers at `host:port` within some seconds, or nothing when somebody does."""
    host, _, port = address.rpartition(":")
    try:
        with contextlib.closing(socket.create_connection((host, int(port)), seconds)):
            return ""
    except TimeoutError:
        return f"no answer within {seconds:.0f} seconds"
    except OSError as error:
        return (error.strerror or str(error)).lower()
