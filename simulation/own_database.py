"""Starts a Postgres for one run, and removes it with its folder when the run ends, even if it is killed.

Usage: python -m simulation.own_database PARENT_PID FOLDER    (removes it once parent or standard input ends)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from tempfile import mkdtemp

from app.postgres.leftover import servers_on, stop_leftovers

REMOVE_SECONDS = 60.0
BEGUN_SECONDS = 20.0  # for which a Postgres that was being created is waited for


@contextmanager
def vanishing_folder(prefix: str) -> Iterator[Path]:
    """Yields a new folder, which another process removes once this one has ended, even if it was killed.

    A Postgres whose data is in there is stopped first.
    """
    folder = Path(mkdtemp(prefix=prefix))
    command = [sys.executable, "-m", "simulation.own_database", str(os.getpid()), str(folder)]
    # In a session of its own, so that it outlives a process group or terminal that ends as a whole.
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield folder
    finally:
        assert guard.stdin
        guard.stdin.close()
        guard.wait(REMOVE_SECONDS)


@contextmanager
def own_database(prefix: str, say: Callable[[str], None]) -> Iterator[str]:
    """Yields the URL of an empty, migrated database on a server of its own."""
    # Only here: the process that removes the folder starts a quarter of a second sooner without them.
    from app.embedded import EmbeddedPostgres
    from app.store.database import schema

    with vanishing_folder(prefix) as folder, EmbeddedPostgres(folder, say=say) as server:
        schema.migrate(server.url)
        yield server.url


def main() -> None:
    parent, folder = int(sys.argv[1]), Path(sys.argv[2])
    with suppress(ProcessLookupError):
        process = os.pidfd_open(parent)
        if os.getppid() == parent:  # or else the number belongs to another process by now
            select([process, sys.stdin], [], [])
    stop_leftovers(folder / "postgres")
    _remove(folder)


def _remove(folder: Path) -> None:
    """Removes the folder once no Postgres works in it.

    One that was being created ends by itself. Without its files it would fail, and leave its shared memory behind.
    """
    deadline = time.monotonic() + BEGUN_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        if not any(servers_on(inner) for inner in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
