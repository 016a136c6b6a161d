"""Ports that a test may listen on."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from itertools import count

SHARE = "GPUWRIGHT_TEST_PORTS"  # 1/3: the second of three shares; each worker of a test run has one
FIRST, COUNT = 10_000, 8_000  # those of copies follow; the kernel's begin at 32,768
_taken = count(secrets.randbelow(COUNT))  # two test runs at once should not begin at the same


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    """Returns a port that is free, and stays free until it is used.

    A program that asks for any port, or connects, gets one of the kernel's range, even the one that we had just before.
    Ours lie below that range; each worker of a test run has a share of them, and takes one after the other.
    """
    place, shares = map(int, os.environ.get(SHARE, "0/1").split("/"))
    size = COUNT // shares
    for _ in range(size):
        port = FIRST + place * size + next(_taken) % size
        with socket.socket(socket.AF_INET, kind) as probe, suppress(OSError):
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what waits for its last packets is free
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port is taken")
