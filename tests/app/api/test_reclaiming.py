"""Notices of reclaim over REST: given once, shown everywhere, withdrawn; and those that nodes report themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer
from tests.support.server import Reply

pytestmark = pytest.mark.slow

NODE = "node-1"


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer) -> Iterator[Planned]:
    with planned_fleet(postgres, seconds=35) as planned:
        yield planned


def now(fleet: Planned) -> datetime:
    return fleet.simulation.clock.now()


def give(fleet: Planned, node: str = NODE, **body: Any) -> Reply:
    return fleet.server.request("POST", f"/api/v1/nodes/{node}/reclaim", body)


def withdraw(fleet: Planned, node: str = NODE, **headers: str) -> Reply:
    return fleet.server.request("DELETE", f"/api/v1/nodes/{node}/reclaim", headers=headers)


def cordons(fleet: Planned) -> list[tuple[Any, ...]]:
    items = fleet.server.request("GET", f"/api/v1/cordons?node={NODE}").json["items"]
    return [(item["gpu"], item["mode"], item["deadline"]) for item in items]


def status(fleet: Planned) -> dict[str, Any]:
    found: dict[str, Any] = fleet.server.request("GET", f"/api/v1/nodes/{NODE}").json["status"]
    return found


def condition(fleet: Planned) -> tuple[str, str]:
    (found,) = [entry for entry in status(fleet)["conditions"] if entry["type"] == "Reclaim"]
    return found["status"], found["reason"]


def told(fleet: Planned, *reasons: str) -> list[tuple[str, str]]:
    wanted = "".join(f"&reason={reason}" for reason in reasons)
    items = fleet.server.request("GET", f"/api/v1/events?kind=Node&name={NODE}{wanted}").json["items"]
    return [(item["reason"], item["message"]) for item in items]


def audited(fleet: Planned) -> list[str]:
    items = fleet.server.request("GET", "/api/v1/audit?limit=500").json["items"]
    return [item["verb"] for item in items if item["verb"] in ("reclaim", "withdraw-reclaim")]


def test_a_notice_is_given_once_shown_and_withdrawn(fleet: Planned) -> None:
    deadline = (now(fleet) + timedelta(minutes=2)).isoformat()
    made, again = give(fleet, deadline=deadline, message="spot"), give(fleet, deadline=deadline, message="spot")
    assert made.status == again.status == 200, made.text
    assert made.json == again.json
    assert (made.json["mode"], made.json["gpu"], made.json["message"]) == ("reclaim", None, "spot")
    assert cordons(fleet) == [(None, "reclaim", deadline)]
    assert condition(fleet) == ("True", "NoticeGiven")
    assert datetime.fromisoformat(status(fleet)["reclaimAt"]) == datetime.fromisoformat(deadline)
    refused = fleet.server.request("POST", f"/api/v1/nodes/{NODE}/uncordon", {})
    assert refused.status == 409
    assert f"gpuwright reclaim {NODE} --withdraw" in refused.json["detail"]
    key = {"Idempotency-Key": "withdraw-once"}
    assert withdraw(fleet, **key).json == withdraw(fleet, **key).json
    assert withdraw(fleet).status == 404
    assert cordons(fleet) == []
    assert condition(fleet) == ("False", "NoNotice")
    assert status(fleet)["reclaimAt"] == ""
    assert audited(fleet) == ["withdraw-reclaim", "reclaim"]
    moment = datetime.fromisoformat(deadline).strftime("%Y-%m-%dT%H:%M:%S")
    (gone, _), (given, message) = told(fleet, "reclaim_notice", "reclaim_withdrawn")
    assert (gone, given) == ("reclaim_withdrawn", "reclaim_notice")
    assert message.startswith(f"the node will be reclaimed at {moment}")
    assert message.endswith(": spot")


def test_a_notice_may_say_in_how_many_seconds_by_the_clock_of_the_control_plane(fleet: Planned) -> None:
    made = give(fleet, seconds=90)
    left = datetime.fromisoformat(made.json["deadline"]) - now(fleet)
    assert timedelta(seconds=85) < left <= timedelta(seconds=95)
    withdraw(fleet)


def test_a_drain_stays_when_the_notice_beside_it_is_withdrawn(fleet: Planned) -> None:
    fleet.server.request("POST", f"/api/v1/nodes/{NODE}/drain", {})
    assert give(fleet, deadline=(now(fleet) + timedelta(seconds=30)).isoformat()).status == 200
    assert [mode for _, mode, _ in cordons(fleet)] == ["drain", "reclaim"]
    withdraw(fleet)
    assert [mode for _, mode, _ in cordons(fleet)] == ["drain"]
    fleet.server.request("POST", f"/api/v1/nodes/{NODE}/uncordon", {})
    assert cordons(fleet) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"deadline": "soon"},
        {"deadline": "2026-06-01T12:00:00"},
        {"deadline": "2001-01-01T00:00:00Z"},
        {"deadline": "2031-01-01T00:00:00Z"},
        {"deadline": "2031-01-01T00:00:00Z", "gpu": 1},
        {"deadline": 1780000000},
        {"deadline": "2026-06-01T12:02:00Z", "message": "a\nb"},
        {"deadline": "2026-06-01T12:02:00Z", "seconds": 60},
        {"seconds": 0},
        {"seconds": 86401},
        {"seconds": True},
    ],
)
def test_a_notice_that_makes_no_sense_is_refused(fleet: Planned, body: dict[str, Any]) -> None:
    before = audited(fleet)
    assert give(fleet, **body).status == 422
    assert cordons(fleet) == []
    assert audited(fleet) == before


def test_there_is_no_notice_of_a_node_that_is_not_declared(fleet: Planned) -> None:
    deadline = (now(fleet) + timedelta(minutes=2)).isoformat()
    assert give(fleet, "node-9", deadline=deadline).status == 404
    assert withdraw(fleet, "node-9").status == 404


def test_what_a_node_reports_counts_until_it_is_withdrawn_or_reported_no_longer(fleet: Planned) -> None:
    machine, simulation = fleet.simulation.fleet.nodes[NODE], fleet.simulation
    machine.reclaim_at = now(fleet) + timedelta(minutes=10)
    simulation.advance(15)
    assert [mode for _, mode, _ in cordons(fleet)] == ["reclaim"]
    entry = fleet.server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (entry["verb"], entry["principal"], entry["scope"]) == ("reclaim", f"node/{NODE}", "node")
    assert withdraw(fleet).status == 200
    simulation.advance(30)
    assert cordons(fleet) == [], "the same report does not give it again"
    machine.reclaim_at += timedelta(minutes=1)
    simulation.advance(15)
    assert [mode for _, mode, _ in cordons(fleet)] == ["reclaim"], "another deadline does"
    later = (now(fleet) + timedelta(minutes=30)).isoformat()
    give(fleet, deadline=later)
    assert cordons(fleet)[0][2] == machine.reclaim_at.isoformat(), "the earlier one counts"
    machine.reclaim_at = None
    simulation.advance(15)
    assert cordons(fleet) == [(None, "reclaim", later)]
    withdraw(fleet)
    machine.reclaim_at = datetime(2090, 1, 1, tzinfo=UTC)
    simulation.advance(15)
    assert cordons(fleet) == [], "a deadline out of reach is none"
    machine.reclaim_at = None
    simulation.advance(15)


def test_a_node_that_its_cluster_drains_is_emptied_until_the_cluster_wants_it_again(fleet: Planned) -> None:
    machine, simulation = fleet.simulation.fleet.nodes[NODE], fleet.simulation
    machine.drained = True
    simulation.advance(15)
    assert cordons(fleet) == [(None, "cluster", None)]
    assert condition(fleet)[0] == "False", "nobody takes it back"
    assert ("cluster_drain", "who runs the node's cluster drains it") in told(fleet, "cluster_drain")
    lifted = fleet.server.request("POST", f"/api/v1/nodes/{NODE}/uncordon", {})
    assert (lifted.status, f"kubectl uncordon {NODE}" in lifted.json["detail"]) == (409, True)
    machine.reclaim_at = now(fleet) + timedelta(minutes=10)
    simulation.advance(15)
    assert [mode for _, mode, _ in cordons(fleet)] == ["reclaim"], "a machine that goes is more than a drain"
    machine.reclaim_at = None
    simulation.advance(15)
    assert [mode for _, mode, _ in cordons(fleet)] == ["cluster"]
    machine.drained = False
    simulation.advance(15)
    assert cordons(fleet) == []


def test_a_node_that_is_declared_again_is_under_no_notice(fleet: Planned) -> None:
    spare = {"gpuType": "v100-16gb", "gpus": 2, "cpuCores": 48, "memoryGib": 256}
    manifest = {"apiVersion": "gpuwright/v1", "kind": "Node", "metadata": {"name": "spare"}, "spec": spare}
    assert fleet.server.request("PUT", "/api/v1/nodes/spare", manifest).status == 201
    assert give(fleet, "spare", deadline=(now(fleet) + timedelta(minutes=2)).isoformat()).status == 200
    assert fleet.server.request("DELETE", "/api/v1/nodes/spare").status == 200
    assert fleet.server.request("PUT", "/api/v1/nodes/spare", manifest).status == 201
    assert fleet.server.request("GET", "/api/v1/cordons?node=spare").json["items"] == []
