"""Reports through the API: stored once whatever happens to them on the way, and nothing that must not be stored."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.store.database.database import Database
from tests.support.patience import until
from tests.support.reports import interval, report, send, this_minute
from tests.support.server import RunningServer


def rows(database: Database, sql: str, **parameters: Any) -> list[Any]:
    return database.read(lambda connection: list(connection.execute(text(sql), parameters)))


def kept(database: Database, node: str) -> dict[datetime, dict[str, Any]]:
    """Minute -> the report that is kept of it."""
    found = rows(database, "SELECT minute, body FROM report_minute WHERE node = :node", node=node)
    return {row.minute: json.loads(zlib.decompress(row.body)) for row in found}


def state(database: Database, node: str) -> Any:
    (row,) = rows(database, "SELECT * FROM node_state WHERE node = :node", node=node)
    return row


def refused(server: RunningServer, reason: str) -> float:
    text_ = server.request("GET", "/metrics").text
    name = f'gpuwright_reports_refused_total{{reason="{reason}"}} '
    return sum(float(line.removeprefix(name)) for line in text_.splitlines() if line.startswith(name))


def test_a_report_is_stored_when_it_is_answered(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    reply = send(server, token, report(node, health="degraded", epoch=3))
    assert reply.status == 200
    answer = reply.json
    assert (answer["accepted"], answer["assignmentVersion"], answer["dropped"]) == (True, 0, [])
    assert abs(datetime.fromisoformat(answer["now"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert (state(database, node).health, state(database, node).epoch) == ("degraded", 3)
    assert kept(database, node)[this_minute()]["instances"][0]["id"] == "i-1"


@pytest.mark.slow
def test_reports_doubled_lost_and_reordered_leave_the_newest_of_each_minute(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    minutes = [this_minute() - timedelta(minutes=n) for n in (2, 1, 0)]
    sent = [report(node, n, minutes[n // 6]) for n in range(18)]
    rng = random.Random(7)
    arriving = [one for one in sent if rng.random() > 0.2] * 2
    rng.shuffle(arriving)
    for one in arriving:
        assert send(server, token, one).status == 200
    newest = {minute: max(r["sequence"] for r in arriving if r["minute"] == minute.isoformat()) for minute in minutes}
    assert {minute: one["sequence"] for minute, one in kept(database, node).items()} == newest
    assert state(database, node).ordinal & (2**31 - 1) == max(newest.values())


def test_case_18_a_restarted_agent_comes_after_the_one_before_whatever_its_clock(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    send(server, token, report(node, 500, incarnation=1))
    assert send(server, token, report(node, 0, incarnation=2, health="failed")).json["dropped"] == []
    late = send(server, token, report(node, 501, incarnation=1)).json
    assert late["dropped"][0]["reason"] == "superseded"
    assert late["incarnation"] == 2
    assert state(database, node).health == "failed"


def test_case_17_the_future_is_dropped_counted_and_said(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    before = refused(server, "future")
    ahead = this_minute() + timedelta(hours=1)
    body = report(node, minute=ahead, usage=[interval(f"{node}-u", ahead)])
    reply = send(server, token, body)
    assert reply.status == 200
    assert [(one["what"], one["reason"]) for one in reply.json["dropped"]] == [
        ("telemetry", "future"),
        (f"usage {node}-u", "future"),
    ]
    assert kept(database, node) == {}
    assert rows(database, "SELECT FROM usage_interval WHERE node = :node", node=node) == []
    assert refused(server, "future") == before + 2
    # The node is heard all the same: its clock is wrong, it is not silent.
    assert datetime.now(UTC) - state(database, node).received_at < timedelta(minutes=1)


def test_case_18_a_clock_a_little_ahead_is_forgiven(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    ahead = this_minute() + timedelta(minutes=4)
    assert send(server, token, report(node, minute=ahead)).json["dropped"] == []
    assert list(kept(database, node)) == [ahead]


def test_what_is_older_than_the_retention_is_dropped(server: RunningServer, node: str, token: str) -> None:
    reply = send(server, token, report(node, minute=this_minute() - timedelta(days=30)))
    assert reply.json["dropped"][0]["reason"] == "too_old"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"utilizationPercent": 50', '"utilizationPercent": NaN', "not_finite"),
        ('"utilizationPercent": 50', '"utilizationPercent": -Infinity', "not_finite"),
        ('"utilizationPercent": 50', '"utilizationPercent": 1e400', "out_of_range"),
        ('"powerMeanW": 100', '"powerMeanW": 1e308', "out_of_range"),
        ('"powerMeanW": 100', '"powerMeanW": -1', "out_of_range"),
        ('"powerMeanW": 100', '"powerMeanW": ' + "9" * 5000, "out_of_range"),
        ('"powerMeanW": 100', '"powerMeanW": "100"', "invalid"),
        ('"requests": 10', '"requests": 1.5', "invalid"),
        ('"health"', '"x": ' + "[" * 200_000 + ', "health"', "malformed"),
        ('"gpus": [', '"gpus": [{"index": 0},', "invalid"),
        ('"service": "search"', '"service": "search", "job": "x"', "invalid"),
        ('"service": "search"', '"service": "se\\u0000arch"', "invalid"),
        ('"minute": "', '"minute": "2026-01-01T00:00:30Z", "": "', "invalid"),
    ],
)
def test_case_17_what_is_no_report_is_refused_and_counted(
    server: RunningServer, database: Database, node: str, token: str, old: str, new: str, reason: str
) -> None:
    before = refused(server, reason)
    body = json.dumps(report(node, health="ok"))
    assert old in body
    reply = send(server, token, body.replace(old, new, 1), node)
    assert (reply.status, reply.json["type"]) == (422, "urn:gpuwright:problem:invalid")
    assert refused(server, reason) == before + 1
    assert rows(database, "SELECT FROM node_state WHERE node = :node", node=node) == []


def test_not_utf_8_is_refused(server: RunningServer, node: str, token: str) -> None:
    body = json.dumps(report(node, message="hello")).encode().replace(b"hello", b"\xff\xfe")
    assert send(server, token, body, node).status == 422


def test_case_25_one_node_may_not_speak_for_another(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    in_the_path = send(server, token, report("node-other"))
    in_the_body = send(server, token, report("node-other"), node)
    assert (in_the_path.status, in_the_body.status) == (403, 403)
    entries = server.request("GET", "/api/v1/audit?limit=2").json["items"]
    assert {(one["verb"], one["outcome"], one["name"]) for one in entries} == {("report", "refused", "node-other")}
    assert rows(database, "SELECT FROM node_state WHERE node = 'node-other'") == []


@pytest.mark.slow
def test_case_25_refusals_without_end_do_not_fill_the_audit(
    server: RunningServer, database: Database, node: str
) -> None:
    viewer = server.token("viewer", tenant="flooding")
    before = refused(server, "not_audited")
    assert {send(server, viewer, report(node)).status for _ in range(60)} == {403}
    (row,) = rows(database, "SELECT count(*) AS n FROM audit WHERE principal_tenant = 'flooding'")
    assert 20 <= row.n < 50
    assert refused(server, "not_audited") - before == 60 - row.n


@pytest.mark.parametrize("scope", ["admin", "operator", "viewer"])
def test_people_do_not_report(server: RunningServer, node: str, scope: str) -> None:
    assert send(server, server.token(scope), report(node)).status == 403


def test_usage_is_opened_once_and_closed_once(server: RunningServer, database: Database, node: str, token: str) -> None:
    start = this_minute() - timedelta(minutes=9)
    end, later = start + timedelta(minutes=3), start + timedelta(minutes=5)
    opened = report(node, 1, usage=[interval(f"{node}-u", start)])
    closed = report(node, 2, usage=[interval(f"{node}-u", start, end)])
    again = report(node, 3, usage=[interval(f"{node}-u", start, later, smPercent=99)])
    for one in (opened, opened, closed, closed, again, opened):
        assert send(server, token, one).status == 200
    (row,) = rows(database, "SELECT * FROM usage_interval WHERE node = :node", node=node)
    assert (row.started_at, row.ended_at, row.sm_percent) == (start, end, 30)


def test_case_25_usage_that_was_never_assigned_is_kept_counted_said_and_in_the_audit(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    before = refused(server, "not_assigned")
    claim = report(node, 1, usage=[interval(f"{node}-u", this_minute(), tenant="victim")])
    for _ in range(7):
        (dropped,) = send(server, token, claim).json["dropped"]
    said = "instance i-1 on GPU 0 was never assigned to this node for victim/search"
    assert (dropped["what"], dropped["reason"], dropped["message"]) == (f"usage {node}-u", "not_assigned", said)
    assert len(rows(database, "SELECT FROM usage_interval WHERE node = :node", node=node)) == 1
    assert refused(server, "not_assigned") == before + 7
    audited = rows(database, "SELECT outcome, detail FROM audit WHERE name = :node AND verb = 'report'", node=node)
    assert audited == [("refused", f"usage billed to no tenant: 1; {said}")] * 5, "five say as much as seven"


def test_usage_as_it_was_assigned_is_taken_without_a_word(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    instances = '[{"id": "i-1", "gpu": 0, "tenant": "shop", "service": "search", "smPercent": 30, "memoryGib": 2}]'
    body = f'{{"node": "{node}", "version": 1, "epoch": 1, "generation": 1, "instances": {instances}}}'
    sql = "INSERT INTO assignment VALUES (:node, 1, 1, (SELECT count(*) + 1e9 FROM assignment), :body, now())"
    database.write(lambda connection: connection.execute(text(sql), {"node": node, "body": body}))
    told = send(server, token, report(node, 1, usage=[interval(f"{node}-u", this_minute())]))
    assert told.json["dropped"] == []


def test_usage_closed_before_it_was_heard_of_is_whole(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    start = this_minute() - timedelta(minutes=9)
    end = start + timedelta(minutes=3)
    send(server, token, report(node, 2, usage=[interval(f"{node}-u", start, end)]))
    send(server, token, report(node, 1, usage=[interval(f"{node}-u", start)]))
    (row,) = rows(database, "SELECT * FROM usage_interval WHERE node = :node", node=node)
    assert (row.started_at, row.ended_at) == (start, end)


def test_an_interval_of_the_same_name_on_another_node_is_another(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    """No node can close, or take beforehand, what is another's."""
    start = this_minute() - timedelta(minutes=9)
    ended = start + timedelta(minutes=1)
    send(server, token, report(node, usage=[interval(f"{node}-u", start)]))
    thief = report("thief", usage=[interval(f"{node}-u", start, ended)])
    send(server, server.token("node", node="thief"), thief)
    told = rows(database, "SELECT node, ended_at FROM usage_interval WHERE id = :id", id=f"{node}-u")
    assert {(row.node, row.ended_at) for row in told} == {(node, None), ("thief", ended)}


def test_closed_usage_is_never_rewritten(server: RunningServer, database: Database, node: str, token: str) -> None:
    start = this_minute() - timedelta(minutes=9)
    send(server, token, report(node, usage=[interval(f"{node}-u", start, start)]))
    for sql in ("UPDATE usage_interval SET sm_percent = 1", "DELETE FROM usage_interval"):
        with pytest.raises(Exception, match="opened once and closed once"):
            database.write(lambda connection, sql=sql: connection.execute(text(sql)))  # type: ignore[misc]


@pytest.mark.parametrize("also", ["tenant = 'lab'", "sm_percent = 1", "model = 'other'", "ended_at = NULL"])
def test_usage_is_closed_and_nothing_else_of_it_changes(
    server: RunningServer, database: Database, node: str, token: str, also: str
) -> None:
    start = this_minute() - timedelta(minutes=9)
    send(server, token, report(node, usage=[interval(f"{node}-u", start)]))
    mine = f"WHERE id = '{node}-u'"
    closing = "ended_at = started_at, closed_at = now()"
    sql = f"UPDATE usage_interval SET {also if also == 'ended_at = NULL' else f'{closing}, {also}'} {mine}"
    with pytest.raises(Exception, match="opened once and closed once"):
        database.write(lambda connection: connection.execute(text(sql)))
    sql = f"UPDATE usage_interval SET {closing}, evidence = 'gap' {mine}"
    database.write(lambda connection: connection.execute(text(sql)))


@contextmanager
def full_disk(database: Database, table: str) -> Iterator[None]:
    """Every write to the table fails as it does when the disk is full."""
    database.write(
        lambda c: c.execute(
            text(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
            )
        )
    )
    database.write(
        lambda c: c.execute(text(f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION full_disk()"))
    )
    try:
        yield
    finally:
        database.write(lambda c: c.execute(text(f"DROP TRIGGER full_disk ON {table}")))
        database.write(lambda c: c.execute(text("DROP FUNCTION full_disk()")))


@pytest.mark.slow
def test_on_a_full_disk_telemetry_is_shed_and_the_world_can_still_be_declared(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    with full_disk(database, "report_minute"):
        for sequence in range(3):
            reply = send(server, token, report(node, sequence))
            assert (reply.status, reply.json["type"]) == (503, "urn:gpuwright:problem:unavailable")
            assert int(reply.headers["retry-after"]) > 0
        tenant = {"apiVersion": "gpuwright/v1", "kind": "Tenant", "metadata": {"name": node}, "spec": {}}
        assert server.request("PUT", f"/api/v1/tenants/{node}", tenant).status == 201
        metrics = server.request("GET", "/metrics").text
        assert 'gpuwright_reports_shed_total{reason="disk_full"}' in metrics
    _wait_until_open(server, token, node)
    assert kept(database, node)[this_minute()]["sequence"] == 9
    assert server.process.poll() is None


def _wait_until_open(server: RunningServer, token: str, node: str) -> None:
    until(lambda: send(server, token, report(node, 9)).status == 200, "reports are still shed")


@contextmanager
def failing_for(database: Database, node: str) -> Iterator[None]:
    """Postgres refuses every row of this node, for a reason that nobody thought of."""
    make = (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'surprise'; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT ON node_state FOR EACH ROW "
        f"WHEN (NEW.node = '{node}') EXECUTE FUNCTION refuse()",
    )
    for sql in make:
        database.write(lambda connection, sql=sql: connection.execute(text(sql)))  # type: ignore[misc]
    yield
    for sql in ("DROP TRIGGER refuse ON node_state", "DROP FUNCTION refuse()"):
        database.write(lambda connection, sql=sql: connection.execute(text(sql)))  # type: ignore[misc]


@pytest.mark.slow
def test_one_bad_report_of_a_batch_fails_alone(server: RunningServer, database: Database, node: str) -> None:
    names = [f"{node}-{n}" for n in range(16)]
    tokens = {name: server.token("node", node=name) for name in names}
    with failing_for(database, names[3]), ThreadPoolExecutor(len(names)) as threads:
        statuses = list(threads.map(lambda name: send(server, tokens[name], report(name)).status, names))
    assert statuses == [500 if name == names[3] else 200 for name in names]


def test_what_a_node_said_can_be_read(server: RunningServer, node: str, token: str) -> None:
    assert server.request("GET", f"/api/v1/nodes/{node}/telemetry").status == 404
    send(server, token, report(node, message="all is well", inventory={"gpus": [{"index": 0, "uuid": "GPU-0"}]}))
    found = server.request("GET", f"/api/v1/nodes/{node}/telemetry").json
    assert found["state"]["message"] == "all is well"
    assert found["state"]["inventory"] == {"gpus": [{"index": 0, "uuid": "GPU-0"}]}
    assert server.request("GET", f"/api/v1/nodes/{node}/telemetry", token=token).status == 403


@pytest.mark.parametrize(
    "query",
    [
        "stop=0001-01-01T00:00:00Z",
        "start=0001-01-01T00:00:00%2B14:00",
        "start=9999-12-31T23:59:59-12:00&stop=9999-12-31T23:59:59-12:00",
        "stop=9999-12-31T23:59:59Z",
    ],
)
def test_moments_at_the_end_of_time_are_refused(server: RunningServer, node: str, query: str) -> None:
    assert server.request("GET", f"/api/v1/nodes/{node}/telemetry?{query}").status == 400
