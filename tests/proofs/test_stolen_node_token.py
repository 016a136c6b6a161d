"""A stolen node token floods a real server with overlapping usage; every other node is accounted for all the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from agents.contract.assignments import AssignedInstance, Assignment
from app.ledger import keeping
from app.nodes.pace import WorkPace
from app.store.database.database import Database
from app.store.fleet import assignments
from tests.support.postgres import DatabaseServer
from tests.support.reports import interval, report, send, this_minute
from tests.support.server import RunningServer, running_server
from tests.support.world import gpu_type, node

HONEST = [f"honest-{number}" for number in range(9)]
REPORTS, OF_ONE = 5, 3500  # the attack: reports, and intervals in each


@pytest.fixture
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", GPUWRIGHT_REPORT_RATE_PER_SECOND="10000") as running:
        yield running
    postgres.drop(url)


def assign(database: Database, names: list[str]) -> None:
    def body(name: str, version: int) -> str:
        instance = AssignedInstance("i-1", 0, "shop", "search", sm_percent=100, memory_gib=2)
        return msgspec.json.encode(Assignment(name, version, 1, 1, instances=(instance,))).decode()

    drafts = [assignments.AssignmentDraft(name, 1, partial(body, name)) for name in names]
    assert database.write(lambda connection: assignments.write(connection, 1, drafts))


def rows(database: Database, sql: str) -> list[Any]:
    return database.read(lambda connection: list(connection.execute(text(sql))))


@pytest.mark.slow
def test_case_17_a_flood_of_overlapping_usage_from_one_token_delays_no_account_but_its_own(
    server: RunningServer,
) -> None:
    names = ["stolen", *HONEST]
    server.request("POST", "/api/v1/apply", [gpu_type(), *(node(name) for name in names)])
    later = datetime.now(UTC) + timedelta(hours=2)
    database = Database(server.database_url, pool_size=2, direct=True)
    assign(database, names)
    tokens = {name: server.token("node", node=name) for name in names}
    for name in HONEST:
        usage = [interval("u", this_minute(), smPercent=100)]
        assert send(server, tokens[name], report(name, 1, usage=usage)).json["dropped"] == []
    begins = datetime.now(UTC) + timedelta(minutes=1)  # after the assignment; so far a clock may be ahead
    starts = [begins + timedelta(microseconds=n) for n in range(REPORTS * OF_ONE)]
    ends = begins + timedelta(minutes=3)
    for number in range(REPORTS):
        some = starts[number * OF_ONE : (number + 1) * OF_ONE]
        flood = [interval(f"x-{number}-{n}", start, ends, smPercent=100) for n, start in enumerate(some)]
        sent = send(server, tokens["stolen"], report("stolen", number, usage=flood))
        assert sent.status == 200, sent.text
    for name in names:
        assert send(server, tokens[name], report(name, 99)).status == 200
    accounts = Database(server.database_url, pool_size=2, direct=True, moment=lambda: later)
    keeping.bring_up_to_date(accounts, WorkPace(0))
    done = "SELECT node FROM ledger_node WHERE allocated_until > moment() + interval '30 minutes' ORDER BY node"
    assert [row.node for row in rows(database, done)] == sorted(names)
    used = "SELECT DISTINCT node FROM allocation WHERE kind = 'used' ORDER BY node"
    assert set(HONEST) <= {row.node for row in rows(database, used)}
    assert rows(database, "SELECT FROM ledger_quarantine") == []
    ((stored,),) = rows(database, "SELECT count(*) FROM usage_interval WHERE node = 'stolen'")
    assert stored <= 9
    for opened in (database, accounts):
        opened.close()
