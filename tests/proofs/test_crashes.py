"""kill -9 of the server and of Postgres under concurrent writes: nothing acknowledged is lost, nothing half done.

FAILURES 4 (Postgres restarted), 5 (the connection lost at COMMIT) and 6 (whole transactions retried), all at once
and at random moments; each alone is tried in tests/app/test_database_away.py and
tests/app/store/database/test_database.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import psycopg
import pytest

from app.embedded import EmbeddedPostgres
from tests.proofs.crash_writer import Writer
from tests.support.follower import Follower
from tests.support.patience import patience, until
from tests.support.postgres_crash import kill_postgres
from tests.support.server import RunningServer, running_server
from tests.support.soak import scaled

SEED = 20261120
WRITERS = 6
SERVER_KILLS = scaled(60, 3)
POSTGRES_KILLS = scaled(40, 2)
UNLIMITED = {"GPUWRIGHT_RATE_PER_SECOND": "1000000", "GPUWRIGHT_RATE_BURST": "1000000"}

# An object that is not what the change log says of it last.
ASTRAY = """
    SELECT object.kind, object.tenant, object.name FROM object LEFT JOIN LATERAL (
        SELECT * FROM change WHERE change.uid = object.uid ORDER BY version DESC LIMIT 1) AS last ON true
    WHERE last.version IS DISTINCT FROM object.resource_version
        OR last.action = 'deleted'
        OR last.object -> 'spec' IS DISTINCT FROM object.spec
        OR last.object -> 'metadata' -> 'labels' IS DISTINCT FROM object.labels
"""
# Something that the log says stands, and that does not; or the other way round.
GHOSTS = """
    SELECT last.kind, last.tenant, last.name, last.action FROM (
        SELECT DISTINCT ON (uid) * FROM change ORDER BY uid, version DESC) AS last
    LEFT JOIN object USING (uid) WHERE (last.action = 'deleted') <> (object.uid IS NULL)
"""
DANGLING = """
    SELECT reference.* FROM reference LEFT JOIN object USING (kind, tenant, name) WHERE object.uid IS NULL
"""


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_no_acknowledged_write_is_lost_none_half_done_and_none_done_twice(
    postgres_of_its_own: EmbeddedPostgres,
) -> None:
    """FAILURES 4, 5, 6."""
    url = postgres_of_its_own.url
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", **UNLIMITED) as server:
        stopping = threading.Event()
        token = server.admin_token
        writers = [Writer(n, server.port, token, SEED, stopping) for n in range(WRITERS)]
        follower = Follower([server.port], token, SEED)
        for writer in writers:
            writer.thread.start()
        begun = time.monotonic()
        crash(server, postgres_of_its_own)
        written = [writer.answered for writer in writers]
        until(lambda: all(one.answered > count for one, count in zip(writers, written, strict=True)), "all write again")
        stopping.set()
        for writer in writers:
            writer.thread.join(patience())
            assert not writer.thread.is_alive()
        seconds = time.monotonic() - begun
        report(writers, seconds)
        assert [surprise for writer in writers for surprise in writer.surprises] == []
        with psycopg.connect(url) as connection:
            check(connection, writers)
            told = connection.execute("SELECT version, action FROM change ORDER BY version").fetchall()
        until(lambda: follower.last >= told[-1][0], "the watcher")
        follower.stop()
        assert follower.seen == told  # a watcher across all of it: everything once, in order


def crash(server: RunningServer, postgres: EmbeddedPostgres) -> None:
    rng = random.Random(SEED)
    kills = ["server"] * SERVER_KILLS + ["postgres"] * POSTGRES_KILLS
    rng.shuffle(kills)
    for victim in kills:
        time.sleep(rng.uniform(0.1, 0.8))
        if victim == "server":
            server.kill()
            server.restart()
        else:
            kill_postgres(postgres)
            until(lambda: server.request("GET", "/readyz", token="").status == 200, "recovery of Postgres")


def check(connection: psycopg.Connection[tuple[object, ...]], writers: list[Writer]) -> None:
    def rows(sql: str) -> list[tuple[object, ...]]:
        return connection.execute(sql.encode()).fetchall()

    standing = {name: key for writer in writers for name, key in writer.standing.items()}
    stored = {tuple(row[:3]): row[3] for row in rows("SELECT kind, tenant, name, labels ->> 'write' FROM object")}
    assert stored == standing

    effects: Counter[tuple[object, ...]] = Counter(effect for writer in writers for effect in writer.effects)
    audited = Counter(rows("SELECT request_id, verb, kind, tenant, name FROM audit WHERE outcome = 'done'"))
    assert (audited - effects, effects - audited) == (Counter(), Counter())  # each key did what it was to do, once

    keys = {effect[0] for effect in effects}
    assert {row[0] for row in rows("SELECT key FROM idempotency")} == keys

    assert_applies_are_whole(rows("SELECT request_id, kind, tenant, name FROM audit WHERE outcome = 'done'"), writers)

    (latest,) = rows("SELECT value FROM version WHERE name = 'object'")[0]
    assert rows("SELECT count(*), min(version), max(version) FROM change") == [(latest, 1, latest)]
    assert rows(ASTRAY) == []
    assert rows(GHOSTS) == []
    assert rows(DANGLING) == []


def assert_applies_are_whole(audited: list[tuple[object, ...]], writers: list[Writer]) -> None:
    done: dict[object, set[object]] = {}
    for request_id, *name in audited:
        done.setdefault(request_id, set()).add(tuple(name))
    for writer in writers:
        for key, names in writer.applies.items():
            assert done[key] == names


def report(writers: list[Writer], seconds: float) -> None:
    statuses: dict[int, int] = {}
    for writer in writers:
        for status, count in writer.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    acknowledged = sum(len(writer.effects) for writer in writers)
    replays = sum(writer.replays for writer in writers)
    print(
        f"\n{SERVER_KILLS} + {POSTGRES_KILLS} kills in {seconds:.0f} s, seed {SEED}: {acknowledged} effects "
        f"acknowledged, {replays} answers repeated, statuses {dict(sorted(statuses.items()))}"
    )
