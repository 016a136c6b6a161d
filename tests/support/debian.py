"""A Postgres cluster of Debian's as an operator has it: initdb, a conf.d, a start, and the loss of its disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import psycopg

from tests.support.needs import need
from tests.support.patience import patience, until
from tests.support.ports import free_port
from tests.support.postgres import DEBIAN_15

NOBODY = 65534


class Cluster:
    """One data folder at a time, beneath a folder that belongs to the user whom Postgres runs as."""

    def __init__(self, folder: Path) -> None:
        need(DEBIAN_15 / "bin/postgres", "postgresql-15")
        self.folder = folder
        self.port = free_port()
        self.data = folder / "data"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/gpuwright"

    @property
    def admin(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def run(self, *words: str | Path) -> str:
        """A program of Postgres, or a script, as the user that Postgres runs as; what it printed."""
        done = subprocess.run(
            [str(word) for word in words], cwd=self.folder, env=self._environment(), capture_output=True, text=True,
            timeout=patience(), user=self._user(), group=self._user(),
            extra_groups=None if self._user() is None else [],
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def initialize(self, configuration: str) -> None:
        """A new, empty cluster with this in its conf.d."""
        self._give()
        self.run("initdb", "--no-sync", "--auth=trust", "--username=postgres", "-D", self.data)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("include_dir = 'conf.d'\n")
        (self.data / "conf.d").mkdir()
        (self.data / "conf.d" / "gpuwright.conf").write_text(configuration)
        self._give()

    def start(self) -> None:
        self._give()
        with (self.folder / "postgres.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["postgres", "-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1", "-k", ""],
                cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, user=self._user(), group=self._user(),
                extra_groups=None if self._user() is None else [],
            )  # fmt: skip
        until(self._writable, f"postgres does not start, see {self.folder}/postgres.log")

    def die(self) -> None:
        """The machine is gone: every process at once, and the disk with it."""
        self.kill()
        shutil.rmtree(self.data)

    def kill(self) -> None:
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _writable(self) -> bool:
        """Whether it answers and recovers no more."""
        assert self.process and self.process.poll() is None, (self.folder / "postgres.log").read_text()[-3000:]
        try:
            with psycopg.connect(self.admin, connect_timeout=5) as connection:
                return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
        except psycopg.OperationalError:
            return False

    def _give(self) -> None:
        """All of it to the user that Postgres runs as: it refuses root."""
        if self._user() is not None:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(self.folder)], check=True)

    def _user(self) -> int | None:
        return NOBODY if os.geteuid() == 0 else None

    def _environment(self) -> Mapping[str, str]:
        return {"PATH": f"{DEBIAN_15 / 'bin'}:/usr/bin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@contextmanager
def debian_cluster() -> Iterator[Cluster]:
    """In a folder that a user without rights may enter; nothing is left of it."""
    folder = Path(mkdtemp(prefix="gpuwright-debian-"))
    folder.chmod(0o755)
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.kill()
        shutil.rmtree(folder, ignore_errors=True)
