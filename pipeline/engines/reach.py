"""Whether somebody listens at an address, and whose it is."""

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


def is_this_machine(host: str) -> bool:
    """Whether a host name or address is one of this machine's own."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return any(_can_bind(str(address)) for address in addresses)


def _can_bind(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host's name stands for this machine alone."""
    try:
        return all(
            str(info[4][0]).startswith(("127.", "::1")) for info in socket.getaddrinfo(host, None)
        )
    except OSError:
        return False
