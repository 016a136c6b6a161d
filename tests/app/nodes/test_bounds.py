"""What a node reports beyond what is possible is refused by itself, counted, and an event names the node."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from app.control.domain.events import reason_of
from app.store.database.database import Database
from tests.support.reports import interval, report, send, this_minute
from tests.support.server import RunningServer


def refused(server: RunningServer, reason: str) -> float:
    name = f'gpuwright_reports_refused_total{{reason="{reason}"}} '
    lines = server.request("GET", "/metrics").text.splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


@pytest.mark.slow
def test_case_17_usage_beyond_the_bounds_is_counted_and_an_event_names_the_node(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    instances = '[{"id": "i-1", "gpu": 0, "tenant": "shop", "service": "search", "smPercent": 30, "memoryGib": 2}]'
    body = f'{{"node": "{node}", "version": 1, "epoch": 1, "generation": 1, "instances": {instances}}}'
    sql = "INSERT INTO assignment VALUES (:node, 1, 1, (SELECT count(*) + 2e9 FROM assignment), :body, now())"
    database.write(lambda connection: connection.execute(text(sql), {"node": node, "body": body}))
    before = refused(server, "overlapping")
    claims = [interval(f"{node}-{n}", this_minute() - timedelta(minutes=n)) for n in range(20)]
    dropped = send(server, token, report(node, 1, usage=claims)).json["dropped"]
    assert [part["reason"] for part in dropped] == ["overlapping"] * 11
    assert refused(server, "overlapping") == before + 11
    (event,) = server.request("GET", f"/api/v1/events?kind=Node&name={node}").json["items"]
    assert (event["reason"], event["severity"]) == ("usage_refused", "warning")
    assert f"usage of node {node} was refused: 11 intervals; overlapping: instance i-1 on GPU 0" in event["message"]


@pytest.mark.parametrize("year", ["0001", "1066", "9999"])
@pytest.mark.parametrize("field", ["at", "minute", "startedAt"])
def test_case_17_a_moment_that_no_clock_shows_is_refused(
    server: RunningServer, node: str, token: str, field: str, year: str
) -> None:
    moment = f"{year}-12-31T23:59:00-14:00"
    body = report(node, 1, usage=[interval(f"{node}-u", this_minute())])
    if field == "startedAt":
        body["usage"][0][field] = moment
    else:
        body[field] = moment
    assert send(server, token, body).status == 422


@pytest.mark.parametrize("word", ["node_quarantined", "node_released"])
def test_the_events_of_a_quarantine_have_reasons_that_are_listed(word: str) -> None:
    assert reason_of(word)
