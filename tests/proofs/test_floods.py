"""FAILURES 30: a flood is answered 429, to the one who floods; the reports of nodes go on in a lane of their own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest

from app.store.database.database import Database
from tests.app.console.visits import session, sign_in, visit
from tests.support.caller import Caller, NoAnswer
from tests.support.patience import until
from tests.support.reports import poll, report, send
from tests.support.server import RunningServer, running_server
from tests.support.world import declare_world

pytestmark = pytest.mark.slow

FLOODERS = 4
REPORTS = 12
PAUSE_SECONDS = 0.25


def test_reports_are_stored_and_others_answered_throughout_a_flood(api: RunningServer) -> None:
    declare_world(api)
    flooding, reading, reporting = api.token("operator"), api.token("viewer"), api.token("node", node="node-1")
    over = threading.Event()
    flooded: Counter[int] = Counter()

    def flood() -> None:
        caller = Caller(api.port, flooding)
        while not over.is_set():
            try:
                reply = caller.ask("GET", "/api/v1/services?limit=500")
            except NoAnswer:
                continue
            flooded[reply.status] += 1
            if reply.status == 429:
                assert int(reply.headers["retry-after"]) > 0

    threads = [threading.Thread(target=flood) for _ in range(FLOODERS)]
    for thread in threads:
        thread.start()
    node, reader = Caller(api.port, reporting), Caller(api.port, reading)
    try:
        while flooded[429] < 100:  # it is under way
            time.sleep(0.05)
        told, read = [], []
        for sequence in range(REPORTS):
            now = datetime.now(UTC).isoformat()
            report = {"node": "node-1", "incarnation": 1, "sequence": sequence, "at": now, "minute": now[:16] + ":00Z"}
            told.append(node.ask("POST", "/api/v1/nodes/node-1/report", report).status)
            read.append(reader.ask("GET", "/api/v1/services/shop/search").status)
            time.sleep(PAUSE_SECONDS)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert told == [200] * REPORTS
    assert read == [200] * REPORTS
    assert set(flooded) == {200, 429}


def test_case_30_requests_that_hold_every_connection_keep_no_node_waiting(database_url: str) -> None:
    with (
        running_server(database_url, GPUWRIGHT_POOL_SIZE="2", GPUWRIGHT_DATABASE_DIRECT="1") as server,
        psycopg.connect(database_url) as blocker,
        ThreadPoolExecutor(4) as threads,
    ):
        declare_world(server)
        reporting, viewers = server.token("node", node="node-1"), [server.token("viewer") for _ in range(4)]
        blocker.execute("LOCK TABLE event IN ACCESS EXCLUSIVE MODE")
        blocked = [threads.submit(server.request, "GET", "/api/v1/events", token=viewer) for viewer in viewers]
        until(lambda: waiting_for_locks(database_url) == 2, "both connections are taken")
        for sequence in range(3):
            assert send(server, reporting, report("node-1", sequence)).status == 200
            assert poll(server, reporting, "node-1").status == 204
        fresh = server.request("GET", "/api/v1/whoami", token=server.token("viewer"))
        assert fresh.status == 200
        blocker.rollback()
        assert {future.result().status for future in blocked} <= {200, 503}


def test_case_30_writes_that_wait_for_a_lock_leave_connections_to_reads(database_url: str) -> None:
    with (
        running_server(database_url, GPUWRIGHT_POOL_SIZE="3", GPUWRIGHT_DATABASE_DIRECT="1") as server,
        psycopg.connect(database_url) as blocker,
        ThreadPoolExecutor(6) as threads,
    ):
        declare_world(server)
        blocker.execute("SELECT value FROM version WHERE name = 'object' FOR UPDATE")
        path = "/api/v1/tenants/shop"
        blocked = [threads.submit(server.request, "PUT", path, {"spec": {}}) for _ in range(6)]
        until(lambda: "requests_in_flight 7.0" in server.request("GET", "/metrics").text, "all of them are at work")
        until(lambda: waiting_for_locks(database_url) > 0, "one of them waits for the lock")
        read = [server.request("GET", "/api/v1/services/shop/search").status for _ in range(20)]
        assert read == [200] * 20
        assert waiting_for_locks(database_url) == 1
        blocker.rollback()
        statuses = {future.result().status for future in blocked}
        assert 200 in statuses
        assert statuses <= {200, 503}


def waiting_for_locks(database_url: str) -> int:
    """How many connections to this database wait for a lock."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(database_url) as connection:  # a transaction sees the same activity to its end
        row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


def test_case_30_many_sessions_of_a_token_share_its_rate(database_url: str) -> None:
    with running_server(database_url, GPUWRIGHT_RATE_PER_SECOND="0.001", GPUWRIGHT_RATE_BURST="10") as server:
        declare_world(server)
        token = server.token("viewer", tenant="shop")
        cookies = [session(server, token) for _ in range(4)]
        statuses = Counter(visit(server, cookie).status for _ in range(5) for cookie in cookies)
        assert statuses == {200: 10, 429: 10}
        assert server.request("GET", "/api/v1/whoami", token=token).status == 429
        assert visit(server, session(server, server.token("viewer", tenant="shop"))).status == 200


def test_case_30_a_token_that_signs_in_without_end_is_refused_and_fills_no_table(database_url: str) -> None:
    with running_server(database_url, GPUWRIGHT_SIGN_INS_PER_HOUR="9") as server:
        token = server.token("viewer")
        assert [sign_in(server, token).status for _ in range(5)] == [303] * 3 + [429] * 2
        assert sign_in(server, server.token("viewer")).status == 303
        by_address = [sign_in(server, server.token("viewer")).status for _ in range(30)]
        assert set(by_address) == {303, 429}
        assert sign_in(server, server.token("viewer"), peer="127.0.0.9").status == 303
        audited = server.request("GET", "/api/v1/audit?limit=500").json["items"]
        assert sum(entry["kind"] == "Session" for entry in audited) == 5 + by_address.count(303)
        database = Database(server.database_url, pool_size=1)
        sql = "SELECT count(*) FROM token"
        sessions = database.read(lambda connection: connection.exec_driver_sql(sql).scalar_one())
        database.close()
        assert sessions < 80
