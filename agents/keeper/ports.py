"""Ports for copies to listen on."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection

FIRST, LAST = 18_000, 31_999  # below those that the kernel gives to outgoing connections


def free_port(host: str, taken: Collection[int]) -> int:
    """A port of `host` that nobody listens on now, and that no copy was given. Somebody may still come first."""
    reason = ""
    for port in random.sample(range(FIRST, LAST + 1), 200):
        if port in taken:
            continue
        try:
            with socket.socket() as probe:
                probe.bind((host, port))
                return port
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno != errno.EADDRINUSE:
                break  # it is the same with every port
    raise OSError(f"no free port was found on {host} within {FIRST}..{LAST}: {reason}")
