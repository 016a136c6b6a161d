"""The condition Reporting: silence is one change, and neither our absence nor a wrong clock makes any."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.manifests.model import Key, Kind
from app.nodes import reporting_condition
from app.store.database import clock, versions
from app.store.database.database import Database
from app.store.world import objects
from tests.support.reports import report, send, this_minute
from tests.support.server import RunningServer
from tests.support.world import gpu_type, manifest

pytestmark = pytest.mark.slow

NODES = ("heard", "never", "silent")


@pytest.fixture
def database(api: RunningServer) -> Iterator[Database]:
    opened = Database(api.database_url, pool_size=2)
    spec = {"gpuType": "v100-16gb", "gpus": 1, "cpuCores": 1, "memoryGib": 1}
    world = [gpu_type(), *(manifest("Node", name, spec) for name in NODES)]
    assert api.request("POST", "/api/v1/apply", world).status == 200
    hear(opened, "heard", 5)
    hear(opened, "silent", 300)
    yield opened
    opened.close()


def hear(database: Database, node: str, seconds_ago: float) -> None:
    sql = (
        "INSERT INTO node_state VALUES (:node, 1, now() - make_interval(secs => :ago), "
        "'2001-01-01Z', '', 'ok', '', 0, 0, 0) ON CONFLICT (node) DO UPDATE SET received_at = excluded.received_at"
    )
    database.write(lambda c: c.execute(text(sql), {"node": node, "ago": seconds_ago}))


def conditions(database: Database) -> dict[str, Any]:
    found = database.read(lambda c: objects.get_many(c, [Key(Kind.NODE, "", name) for name in NODES]))
    return {key.name: one.status.get("conditions", [None])[0] for key, one in found.items()}


def long_ago(database: Database) -> datetime:
    return database.read(clock.now) - timedelta(hours=1)


def settle(database: Database, since: datetime) -> int:
    return database.write(lambda connection: reporting_condition.update_reporting(connection, since))


def test_each_node_is_heard_silent_or_never_reported(database: Database) -> None:
    assert settle(database, long_ago(database)) == 3
    said = conditions(database)
    assert {name: (one["status"], one["reason"]) for name, one in said.items()} == {
        "heard": ("True", "Reporting"),
        "never": ("Unknown", "NeverReported"),
        "silent": ("Unknown", "Silent"),
    }


def test_what_lasts_is_not_said_again(database: Database) -> None:
    since = long_ago(database)
    settle(database, since)
    before = database.read(versions.current)["object"]
    assert settle(database, since) == 0
    assert database.read(versions.current)["object"] == before


def test_a_node_that_comes_back_is_heard(database: Database) -> None:
    since = long_ago(database)
    settle(database, since)
    hear(database, "silent", 0)
    assert settle(database, since) == 1
    assert conditions(database)["silent"]["status"] == "True"


def test_case_18_our_own_absence_makes_nobody_silent(database: Database) -> None:
    just_now = database.read(clock.now) - timedelta(seconds=5)
    settle(database, just_now)
    assert conditions(database)["silent"]["reason"] == "Reporting"


@pytest.mark.parametrize("hours", [1, -1])
def test_case_18_a_fleet_whose_clocks_are_wrong_or_go_back_is_heard_all_the_same(
    api: RunningServer, database: Database, hours: int
) -> None:
    """What counts is when the database heard a node; its reports are ordered by its own count of them."""
    since = long_ago(database)
    for name in NODES:
        token = api.token("node", node=name)
        for sequence, wrong in enumerate((hours, 2 * hours, -hours)):  # ahead, further, and then back
            minute = this_minute() + timedelta(hours=wrong)
            said = report(name, sequence, minute, incarnation=2, epoch=sequence, usage=[])
            assert send(api, token, said).status == 200
        assert api.request("GET", "/api/v1/whoami", token=token).status == 200
    while settle(database, since):
        pass
    assert {name: one["reason"] for name, one in conditions(database).items()} == dict.fromkeys(NODES, "Reporting")
    for name in NODES:
        assert api.request("GET", f"/api/v1/nodes/{name}/state").json["epoch"] == 2
