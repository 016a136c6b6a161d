"""The server's folder, created completely or not at all, and the settings of every start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.postgres import child
from app.postgres.admission import append_privately
from app.postgres.faults import PostgresError
from app.postgres.owner import ServerUser

SUPERUSER = "postgres"  # no password: reached over the socket by the user who started the server
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
SETTINGS: Mapping[str, str] = {
    **DURABLE,
    "listen_addresses": "127.0.0.1",
    "password_encryption": "scram-sha-256",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "jit": "off",  # our statements are short; compiling them costs more than running them
    "idle_in_transaction_session_timeout": "60s",  # a stuck client must not hold the writers' lock
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",  # statements may hold what must not be logged
    "cluster_name": "gpuwright",
}
SETTINGS_SINCE_18: Mapping[str, str] = {"io_method": "sync"}  # no worker processes for a small database


class PostgresCluster:
    """A Postgres data folder, the programs it is run with, and the user they run as."""

    def __init__(self, folder: Path, owner: ServerUser, install: Path, major: int) -> None:
        self.folder = folder
        self.owner = owner
        self.install = install
        self.major = major
        self._handle: int | None = None

    def ensure(self) -> bool:
        """Creates the folder if there is none; returns True if it did."""
        # Under another name until it is complete and on disk: a start killed half-way begins again. Under a new
        # name each time: what that start left running may still write into its own for a moment.
        beginnings = f"{self.folder.name}.new."
        for left in self.folder.parent.glob(f"{beginnings}*"):
            shutil.rmtree(left, ignore_errors=True)
        if self.folder.exists():
            self._refuse_another_version()
            return False
        fresh = Path(tempfile.mkdtemp(prefix=beginnings, dir=self.folder.parent))  # for its owner alone
        if self.owner.switch:
            os.chown(fresh, self.owner.uid, self.owner.gid)
        self._initialise(fresh)
        fresh.rename(self.folder)
        _sync(self.folder.parent)
        return True

    @property
    def socket_dir(self) -> str:
        """Returns a path to the folder of the server's socket that is short enough (107 bytes) for any folder."""
        if self._handle is None:
            self._handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._handle}"

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def launch(self, port: int, log: Path) -> subprocess.Popen[bytes]:
        """Starts the server, which ends when the calling thread does."""
        settings = {**SETTINGS, **(SETTINGS_SINCE_18 if self.major >= 18 else {})}
        settings["port"] = str(port)
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with append_privately(log) as output:
            return self._run("postgres", self.folder, options, output.fileno())

    def last_port(self) -> int | None:
        """Returns the port of the last start, so that clients that know it find the server again."""
        try:
            found = re.search(r'"port=(\d+)"', (self.folder / "postmaster.opts").read_text())
        except OSError:
            return None
        return int(found[1]) if found else None

    def _initialise(self, folder: Path) -> None:
        # C.UTF-8 from Postgres itself: the order of text, and so every index, survives a change of machine.
        builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if self.major >= 17 else []
        options = [f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C", *builtin]
        options += ["--auth-local=peer", "--auth-host=scram-sha-256", "--data-checksums"]
        # It syncs what it wrote (0.03 s of 0.5): a folder that a power cut can spoil would be no start.
        read, write = os.pipe()
        process = self._run("initdb", folder, options, write)
        os.close(write)
        try:
            with os.fdopen(read, "rb") as output:
                printed = output.read().decode(errors="replace")
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # it ends once the server that it runs has ended
            process.wait()
            raise
        if code != 0:
            if "No space left on device" in printed:
                raise PostgresError(f"the disk with {folder.parent} is full; free some space and start again")
            raise PostgresError(f"initdb failed in {folder}: {' '.join(printed.split())[-400:]}")
        starter = "root" if self.owner.switch else self.owner.name
        rules = f"local all {SUPERUSER} peer map=starter\nhost all all 127.0.0.1/32 scram-sha-256\n"
        _replace(folder / "pg_hba.conf", rules)
        _replace(folder / "pg_ident.conf", f"starter {starter} {SUPERUSER}\n")
        _sync(folder)

    def _run(self, program: str, folder: Path, options: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        # As root the folder may lie under one that `nobody` cannot enter (a 0700 home). Instead of opening
        # parents to everyone, hand the folder over as an open descriptor: the server reaches it through /proc
        # and never walks the path.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        by_handle = f"/proc/self/fd/{handle}"
        data = by_handle if self.owner.switch else str(folder)
        if program == "postgres":
            options = [*options, "-c", f"unix_socket_directories={by_handle}"]
        uid = str(self.owner.uid) if self.owner.switch else "-"
        launcher = [sys.executable, "-I", "-S", child.__file__, str(os.getpid()), uid, str(self.owner.gid)]
        try:
            return subprocess.Popen(
                [*launcher, str(self.install / "bin" / program), "-D", data, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=ENVIRONMENT,
                cwd="/",
                pass_fds=[handle],
                start_new_session=True,  # Ctrl-C in the terminal is for us; the server goes last
            )
        finally:
            os.close(handle)

    def _refuse_another_version(self) -> None:
        try:
            written_by = int((self.folder / "PG_VERSION").read_text())
        except (OSError, ValueError) as error:
            raise PostgresError(
                f"{self.folder} is not a Postgres folder ({error}); choose another --data-dir"
            ) from error
        if written_by != self.major:
            raise PostgresError(
                f"{self.folder} was written by Postgres {written_by}, and this gpuwright runs {self.major}; "
                "run `gpuwright db backup` with the gpuwright that wrote it, and restore into a new --data-dir"
            )


def _replace(path: Path, text: str) -> None:
    """Writes new content under the same owner and mode; it is on disk when this returns."""
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
