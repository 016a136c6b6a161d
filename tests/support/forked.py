"""Processes that are forked from one with everything imported: there a second or two sooner, and otherwise the same."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.patience import patience

ROOT = Path(__file__).parents[2]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "pytest",
        "tests.app.http.small_app",
        "app.main",
        "cli.main",
        "cli.verbs.serve",
        "anyio._backends._asyncio",
        "apscheduler.triggers.interval",
        "encodings.idna",
        "sqlalchemy.dialects.postgresql.psycopg",
        "uvicorn.lifespan.on",
        "uvloop",
        "tests.support.warm",
    ]
)


def find_python(code: Path) -> str:
    """Returns the Python of this code: its own if it is an environment, otherwise this one."""
    own = code / "bin" / "python"
    return str(own) if own.exists() else sys.executable


class Forked:
    """`gpuwright WORDS` in a folder; its output goes to a log, its errors too unless they have a file of their own.

    To be used as a Popen.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
    ) -> None:
        started = (list(words), folder, dict(environment), log, errors or log)
        self._process = FORKS.Process(target=_run, args=started, daemon=True)
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


def gpuwright(*words: str, environment: Mapping[str, str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs `gpuwright WORDS` to its end."""
    with TemporaryDirectory(prefix="gpuwright-run-") as name:
        out, errors = Path(name, "out"), Path(name, "errors")
        process = Forked(words, folder, environment, out, errors)
        try:
            code = process.wait(patience())
        finally:
            process.kill()
        return subprocess.CompletedProcess(words, code, out.read_text(), errors.read_text())


def _run(words: list[str], folder: Path, environment: dict[str, str], log: Path, errors: Path) -> None:
    """As a shell would have started it."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    streams = (os.open(os.devnull, os.O_RDONLY), os.open(log, append, 0o600), os.open(errors, append, 0o600))
    for target, source in enumerate(streams):
        os.dup2(source, target)
        os.close(source)

    from cli.main import main

    sys.exit(main(words))
