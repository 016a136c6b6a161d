"""Finds ports for copies to listen on."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection

FIRST_PORT, LAST_PORT = 18_000, 31_999  # below the range that the kernel uses for outgoing connections


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
