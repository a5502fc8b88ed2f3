"""Check who listens at an address, and whether the address is on this machine."""

from __future__ import annotations

import contextlib
import socket

_OWN_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_LOOPBACK_NET = 127


def unreachable(address: str, seconds: float) -> str:
    """Return why nothing answers at `host:port`, or "" if something answers.

    Args:
        address: `host:port`.
        seconds: Time limit in seconds.
    """
    host, _, port = address.rpartition(":")
    try:
        with contextlib.closing(socket.create_connection((host, int(port)), seconds)):
            return ""
    except TimeoutError:
        return f"no answer within {seconds:.0f} seconds"
    except OSError as error:
        return (error.strerror or str(error)).lower()


def is_this_machine(host: str) -> bool:
    """Return whether a host name or address belongs to this machine."""
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
    """Return whether a host name resolves to loopback addresses only."""
    try:
        return all(
            str(info[4][0]).startswith(("127.", "::1")) for info in socket.getaddrinfo(host, None)
        )
    except OSError:
        return False


def names_own_machine(host: str) -> bool:
    """Return whether a name or an address means the local machine on every machine.

    Runs without DNS: localhost, 127.0.0.1 in any notation, 0.0.0.0.
    """
    host = host.lower().rstrip(".")
    if host in _OWN_NAMES or host.endswith(".localhost"):
        return True
    try:
        packed = socket.inet_aton(host)
    except OSError:
        return False
    return packed[0] == _LOOPBACK_NET or not any(packed)
