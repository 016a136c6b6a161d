"""kill -9 of the server while reports come in: what was answered is there, and what is sent again changes nothing."""

from __future__ import annotations

import http.client
import itertools
import random
import threading
import time
from datetime import timedelta

import pytest
from sqlalchemy import text

from app.store.database.database import Database
from tests.support.patience import patience, until
from tests.support.postgres import DatabaseServer
from tests.support.reports import interval, report, send, this_minute
from tests.support.server import RunningServer, running_server
from tests.support.soak import scaled

NODES = 4
KILLS = scaled(20, 2)


@pytest.mark.slow
def test_no_acknowledged_usage_is_lost_or_doubled(postgres: DatabaseServer) -> None:
    url = postgres.create()
    opened, closed = set[str](), set[str]()
    stopping = threading.Event()
    rng = random.Random(11)
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", GPUWRIGHT_REPORT_RATE_PER_SECOND="10000") as server:
        threads = [
            threading.Thread(target=_report, args=(server, f"node-{n}", opened, closed, stopping), daemon=True)
            for n in range(NODES)
        ]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.1, 0.8))
            server.kill()
            server.restart()
        written = len(closed)
        until(lambda: len(closed) > written, "it is written to again")
        stopping.set()
        for thread in threads:
            thread.join(patience())
    database = Database(url, pool_size=1)
    rows = database.read(lambda c: list(c.execute(text("SELECT id, ended_at FROM usage_interval"))))
    database.close()
    postgres.drop(url)
    assert opened <= {row.id for row in rows}
    assert closed <= {row.id for row in rows if row.ended_at is not None}
    assert len(opened) > KILLS


def _report(server: RunningServer, node: str, opened: set[str], closed: set[str], stopping: threading.Event) -> None:
    """Open an interval, close it, each told until it is answered, as an agent does."""
    token = server.token("node", node=node)
    start = this_minute() - timedelta(minutes=5)
    for number in itertools.count():
        name = f"{node}-{number}"
        for step, told in enumerate((interval(name, start), interval(name, start, start + timedelta(minutes=1)))):
            while not stopping.is_set():
                try:
                    reply = send(server, token, report(node, 2 * number + step, usage=[told]))
                except (OSError, http.client.HTTPException):
                    time.sleep(0.02)
                    continue
                if reply.status == 200:
                    (closed if step else opened).add(name)
                    break
        if stopping.is_set():
            return
