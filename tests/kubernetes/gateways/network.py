"""A network of its own for tests: EndpointSlices refuse loopback addresses, and Envoy Gateway listens on all it has."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import need

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
COPIES = "10.77.0.0/24"  # all of it is local there, and nowhere else


@contextmanager
def own_network() -> Iterator[None]:
    """Moves this thread into a network that nothing leads to or out of; what it starts meanwhile is there, too."""
    kernel = ctypes.CDLL(None, use_errno=True)
    before = os.open(Path("/proc/thread-self/ns/net"), os.O_RDONLY)
    try:
        if kernel.unshare(NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "no network of its own")
        ip = need("ip", "iproute2")
        subprocess.run([ip, "link", "set", "lo", "up"], check=True)
        subprocess.run([ip, "route", "add", "local", COPIES, "dev", "lo"], check=True)
        yield
    finally:
        if kernel.setns(before, NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "the network of the machine is lost")
        os.close(before)
