"""A database whose machine is gone sends no word: who asks it hears of that in half a minute."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.needs import skip_unless_ci
from tests.support.patience import patience

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP, FLAGS = 35091, 35092, 1, "16sH14x"
ALONE = ["unshare", "--net", *(["--map-root-user"] if os.geteuid() else [])]  # with a network of its own


@pytest.mark.soak  # it waits for half a minute
def test_a_cut_cable_is_noticed_by_who_asks_and_by_who_waits(tmp_path: Path) -> None:
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode != 0:
        skip_unless_ci("no namespace can be made here")
    done = subprocess.run(
        [*ALONE, sys.executable, "-m", __name__, str(tmp_path)],
        cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=2 * patience(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def main(folder: Path) -> None:
    """In a network of its own: a Postgres, a question under way, a question to come, and the cable is cut."""
    from app.embedded import EmbeddedPostgres
    from app.store.database.database import Database, Unavailable, statement

    loopback(up=True)
    with EmbeddedPostgres(folder / "data") as postgres:
        database = Database(postgres.url, direct=True)
        database.read(lambda connection: connection.execute(statement("one", "SELECT 1")))
        sleep = statement("sleep", "SELECT pg_sleep(20)")
        asked: list[Exception] = []

        def ask(what: Callable[[], object]) -> None:
            try:
                what()
            except Unavailable as error:
                asked.append(error)

        waits = threading.Thread(target=ask, args=[lambda: database.read(lambda c: c.execute(sleep))], daemon=True)
        waits.start()
        time.sleep(1)
        loopback(up=False)
        asks = threading.Thread(target=ask, args=[lambda: database.read(lambda c: c.execute(sleep))], daemon=True)
        asks.start()
        for one in (waits, asks):
            one.join(patience())
            assert not one.is_alive(), "it waits still"
        assert len(asked) == 2
        loopback(up=True)


def loopback(*, up: bool) -> None:
    with socket.socket() as any_socket:
        name, flags = struct.unpack(FLAGS, fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack(FLAGS, b"lo", 0)))
        flags = flags | IFF_UP if up else flags & ~IFF_UP
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack(FLAGS, name, flags))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
