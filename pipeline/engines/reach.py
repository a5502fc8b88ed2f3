"""Whether somebody listens at an address, and whose it is."""

from __future__ import annotations

import contextlib
import socket

_OWN_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_LOOPBACK_NET = 127


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


def names_own_machine(host: str) -> bool:
    """Return whether a name or an address means, on every machine, that machine itself.

    No name is looked up: localhost, 127.0.0.1 in any notation, 0.0.0.0.
    """
    host = host.lower().rstrip(".")
    if host in _OWN_NAMES or host.endswith(".localhost"):
        return True
    try:
        packed = socket.inet_aton(host)
    except OSError:
        return False
    return packed[0] == _LOOPBACK_NET or not any(packed)
