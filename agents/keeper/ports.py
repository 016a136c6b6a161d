"""Finds ports for copies to listen on."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection

FIRST_PORT, LAST_PORT = 18_000, 31_999  # below the range that the kernel uses for outgoing connections
MOST_KNOWN_PORTS = 2000


class PortMemory:
    """Remembers the ports of recent copies, because a gateway may go on sending to them for a while.

    An instance whose copy has died gets its port again, so that a gateway that does not know of the death yet still
    finds it. No other instance gets that port: it would be sent another service's requests.
    """

    def __init__(self) -> None:
        self._instances: dict[int, str] = {}  # by port, the least recent first
        self._served: set[int] = set()  # ports on which a copy has been ready since they were last chosen
        self.is_new = True  # until the copies of an earlier agent are noted

    def note(self, instance: str, port: int, ready: bool) -> None:
        """Notes a copy's port, and that it has been ready there."""
        if self._instances.get(port) != instance:
            self._instances.pop(port, None)
            self._instances[port] = instance
        if ready:
            self._served.add(port)
        while len(self._instances) > MOST_KNOWN_PORTS:
            oldest = next(iter(self._instances))
            del self._instances[oldest]
            self._served.discard(oldest)

    def choose(self, host: str, instance: str, taken: Collection[int]) -> int:
        """Returns the instance's last port if it can be bound again, else a free one; `taken` are those in use."""
        for port in reversed([port for port, known in self._instances.items() if known == instance]):
            if port in self._served and port not in taken and _can_be_bound(host, port):
                self._served.discard(port)  # a copy that fails there gets another one next time
                return port
        return free_port(host, {*taken, *self._instances})


def _can_be_bound(host: str, port: int) -> bool:
    """Returns whether no process listens there; connections of an earlier one may still be closing."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return True
    except OSError:
        return False


def free_port(host: str, taken: Collection[int]) -> int:
    """Returns a port of `host` that is free now and assigned to no copy. Another program may still take it first."""
    reason = ""
    for port in random.sample(range(FIRST_PORT, LAST_PORT + 1), 200):
        if port in taken:
            continue
        try:
            with socket.socket() as probe:
                probe.bind((host, port))
                return port
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno != errno.EADDRINUSE:
                break  # every port would fail the same way
    raise OSError(f"no free port on {host} within {FIRST_PORT}..{LAST_PORT}: {reason}")
