"""A local client that asks the agent, and another that stalls."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

from agents.host.local_socket import SOCKET, LocalServer, ask


def test_a_caller_who_drips_keeps_the_next_waiting_for_a_moment_only(tmp_path: Path) -> None:
    local = LocalServer(tmp_path, {"status": lambda _asked: "well"})
    local.start()
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as dawdler:
        dawdler.connect(str(tmp_path / SOCKET))

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not done.wait(0.2):
                    dawdler.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert ask(tmp_path, "status") == "well"
        finally:
            done.set()
            dripping.join()
            local.stop()
