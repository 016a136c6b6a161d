"""What only a terminal sees: colour, and questions."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.cli.conftest import Run, service
from tests.support.patience import patience
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow


def on_a_terminal(server: RunningServer, *words: str, typed: str = "", **env: str) -> tuple[int, str]:
    """Exit code and all that a terminal shows."""
    master, slave = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    clean |= {"GPUWRIGHT_SERVER": server.url, "GPUWRIGHT_TOKEN": server.admin_token, "TERM": "xterm"} | env
    command = [sys.executable, "-m", "cli.main", *words]
    started = subprocess.Popen(command, env=clean, stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    os.write(master, typed.encode())
    shown = b""
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:  # the other side has closed
        pass
    os.close(master)
    return started.wait(patience()), shown.decode()


@pytest.fixture
def declared(world: Run) -> Run:
    assert world("apply", "-f", "-", stdin=service("t1")).code == 0
    return world


def test_colour_is_for_terminals_that_want_it(declared: Run, server: RunningServer) -> None:
    words = ("apply", "--dry-run", "-f", "/dev/null")
    assert "\x1b[31mgpuwright:\x1b[0m" in on_a_terminal(server, *words)[1]
    assert "\x1b" not in on_a_terminal(server, *words, NO_COLOR="1")[1]
    assert "\x1b" not in on_a_terminal(server, *words, TERM="dumb")[1]


def test_delete_asks_on_a_terminal_and_no_is_no(declared: Run, server: RunningServer) -> None:
    code, shown = on_a_terminal(server, "delete", "service", "shop/t1", typed="n\n")
    assert code == 1 and "service/shop/t1" in shown and "delete? [y/N]" in shown and "nothing was deleted" in shown
    assert declared("get", "service", "shop/t1").code == 0
    code, shown = on_a_terminal(server, "delete", "service", "shop/t1", typed="y\n")
    assert code == 0 and "service/shop/t1 deleted" in shown


def test_delete_with_yes_does_not_ask(declared: Run, server: RunningServer) -> None:
    code, shown = on_a_terminal(server, "delete", "service", "shop/t1", "--yes")
    assert code == 0 and "[y/N]" not in shown
