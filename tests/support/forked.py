"""Processes that are forked from one with everything imported: there a second or two sooner, and otherwise the same."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pytest", "tests.app.http.small_app", "app.main", "cli.main", "cli.verbs.serve", "tests.support.warm"]
)


class Forked:
    """`gpuwright WORDS` in a folder, with what it says in a log; to be used as a Popen."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> None:
        self._process = FORKS.Process(target=_run, args=(list(words), folder, dict(environment), log), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("gpuwright", timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(words: list[str], folder: Path, environment: dict[str, str], log: Path) -> None:
    """As a shell would have started it."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(source, target)
    os.close(said)
    os.close(nothing)

    from cli.main import main

    sys.exit(main(words))
