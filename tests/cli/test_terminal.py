"""What only a terminal sees: colour, and questions."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run, service
from tests.support.patience import patience
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow


def on_a_terminal(
    server: RunningServer, *words: str, typed: str = "", meanwhile: Callable[[], object] | None = None, **env: str
) -> tuple[int, str]:
    """Exit code and all that a terminal shows; a person types at once, or after what happens beside the question."""
    master, slave = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    clean |= {"GPUWRIGHT_SERVER": server.url, "GPUWRIGHT_TOKEN": server.admin_token, "TERM": "xterm"} | env
    command = [sys.executable, "-m", "cli.main", *words]
    started = subprocess.Popen(command, env=clean, stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    shown = b""
    if meanwhile is None:
        os.write(master, typed.encode())
    try:
        while piece := os.read(master, 65536):
            shown += piece
            if meanwhile and b"[y/N]" in shown:
                meanwhile()
                meanwhile = None
                os.write(master, typed.encode())
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


def test_what_was_not_shown_is_not_pruned(world: Run, server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "left.yaml"
    file.write_text(service("kept"))
    world("apply", "--set", "t", "-f", "-", stdin=service("kept") + service("old"))
    words = ("apply", "--set", "t", "--prune", "-f", str(file))

    def apply_another() -> None:
        assert world("apply", "--set", "t", "-f", "-", stdin=service("newer")).code == 0

    code, shown = on_a_terminal(server, *words, typed="y\n", meanwhile=apply_another)
    assert code == 3 and "service/shop/old" in shown
    assert "what left set t has changed since the dry run: " in shown and "Service shop/newer" in shown
    assert world("get", "service", "shop/old").code == world("get", "service", "shop/newer").code == 0
    code, shown = on_a_terminal(server, *words, typed="y\n", NO_COLOR="1")
    assert code == 0 and "service/shop/old deleted" in shown and "service/shop/newer deleted" in shown
