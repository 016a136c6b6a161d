"""What operators say to plans and nodes: each at the right moment only, once, and on the record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.control.domain.events import Reason
from tests.simulation.worlds import CALM_TICK_SECONDS
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer
from tests.support.server import Reply


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer) -> Iterator[Planned]:
    """A fleet whose plans wait for approval."""
    with planned_fleet(postgres, mode="approve", seconds=35) as planned:
        yield planned


def say(fleet: Planned, generation: int, verb: str, **headers: str) -> Reply:
    return fleet.server.request("POST", f"/api/v1/plans/{generation}/{verb}", b"", headers=headers)


def newest(fleet: Planned) -> dict[str, Any]:
    found: dict[str, Any] = fleet.server.request("GET", "/api/v1/plans?limit=1").json["items"][0]
    return found


def audited(fleet: Planned, verb: str) -> list[dict[str, Any]]:
    items = fleet.server.request("GET", "/api/v1/audit?limit=500").json["items"]
    return [one for one in items if one["verb"] == verb]


@pytest.mark.slow
def test_a_plan_waits_is_approved_rolled_out_paused_and_undone(fleet: Planned) -> None:
    proposed = newest(fleet)
    generation = proposed["generation"]
    assert proposed["state"] == "proposed"
    for verb in ("pause", "resume", "abort", "rollback"):
        refused = say(fleet, generation, verb)
        assert refused.status == 409, verb
        assert f"plan {generation} is proposed" in refused.json["detail"]
    key = {"Idempotency-Key": "approve-once"}
    first, again = say(fleet, generation, "approve", **key), say(fleet, generation, "approve", **key)
    assert first.status == again.status == 200
    assert first.json == again.json == {"generation": generation, "state": "rolling", "before": "proposed"}
    assert again.headers["idempotency-replayed"] == "true"
    assert len(audited(fleet, "approve")) == 1
    assert say(fleet, generation, "approve").status == 409
    assert say(fleet, generation, "pause").json["state"] == "paused"
    assert say(fleet, generation, "resume").json["state"] == "rolling"
    told = fleet.server.request("GET", f"/api/v1/events?kind=Plan&name=p{generation}").json["items"]
    assert [one["reason"] for one in told[:3]] == ["rollout_resumed", "rollout_paused", "plan_approved"]
    undone = say(fleet, generation, "rollback")
    assert undone.status == 409
    assert "nothing to go back to" in undone.json["detail"]


@pytest.mark.slow
def test_what_is_proposed_can_be_rejected_once(postgres: DatabaseServer) -> None:
    with planned_fleet(postgres, mode="approve", seconds=35) as fleet:
        generation = newest(fleet)["generation"]
        path = f"/api/v1/plans/{generation}/reject?message=too%20dear"
        assert fleet.server.request("POST", path, b"").json["state"] == "rejected"
        told = fleet.server.request("GET", f"/api/v1/plans/{generation}").json
        assert (told["state"], told["message"]) == ("rejected", "too dear")
        assert say(fleet, generation, "reject").status == 409
        assert say(fleet, generation, "approve").status == 409
        assert say(fleet, 999, "approve").status == 404
        assert say(fleet, generation, "approve").json["detail"].startswith(f"plan {generation} is rejected")


def node(fleet: Planned, verb: str, body: Any, name: str = "node-1") -> Reply:
    return fleet.server.request("POST", f"/api/v1/nodes/{name}/{verb}", body)


def test_nodes_and_gpus_are_cordoned_drained_and_given_back(fleet: Planned) -> None:
    made = node(fleet, "cordon", {"gpu": 1, "message": "fan is loud"})
    assert made.status == 200, made.text
    assert made.json | {"askedAt": ""} == {
        "node": "node-1", "gpu": 1, "mode": "cordon", "deadline": None, "askedBy": made.json["askedBy"],
        "askedAt": "", "message": "fan is loud",
    }  # fmt: skip
    later = "2031-01-01T00:00:00+00:00"
    assert node(fleet, "drain", {"deadline": later}).json["deadline"].startswith("2031-01-01")
    listed = fleet.server.request("GET", "/api/v1/cordons?node=node-1").json["items"]
    assert [(one["gpu"], one["mode"]) for one in listed] == [(None, "drain"), (1, "cordon")]
    assert len(node(fleet, "uncordon", {}).json["items"]) == 2
    assert fleet.server.request("GET", "/api/v1/cordons").json["items"] == []
    assert {one["name"] for one in audited(fleet, "drain")} == {"node-1"}
    told = fleet.server.request("GET", "/api/v1/events?kind=Node&name=node-1&reason=cordon&reason=uncordon").json
    assert [one["message"] for one in told["items"]] == [
        "node node-1 may be used again", "GPU 1 of node node-1 gets no new instances or jobs: fan is loud"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("cordon", {"gpu": 9}, 422),
        ("cordon", {"gpu": -1}, 422),
        ("cordon", {"gpus": 1}, 422),
        ("cordon", {"gpu": True}, 422),
        ("cordon", {"deadline": "2031-01-01T00:00:00Z"}, 400),
        ("drain", {"deadline": "2001-01-01T00:00:00Z"}, 422),
        ("drain", {"deadline": "soon"}, 422),
        ("drain", {"deadline": "9999-12-31T23:59:59-12:00"}, 422),
        ("uncordon", {"gpu": 1}, 404),
    ],
)
def test_an_asking_that_makes_no_sense_is_refused(
    fleet: Planned, verb: str, body: dict[str, Any], status: int
) -> None:  # fmt: skip
    assert node(fleet, verb, body).status == status


@pytest.mark.parametrize("body", [b"{", b'{"message": "\x87"}', b'{"message": "ends\\n"}', b"[]", b"\xff\xfe"])
def test_a_body_that_is_no_text_is_refused(fleet: Planned, body: bytes) -> None:
    assert node(fleet, "uncordon", body).status == 422


def test_of_a_node_that_is_not_there_nothing_is_asked(fleet: Planned) -> None:
    for verb in ("cordon", "drain", "uncordon"):
        refused = node(fleet, verb, {}, "node-9")
        assert (refused.status, refused.json["detail"]) == (404, "there is no Node node-9")


def test_a_gpu_of_a_node_that_is_cordoned_whole_is_not_given_back_alone(fleet: Planned) -> None:
    node(fleet, "cordon", {}, "node-0")
    refused = node(fleet, "uncordon", {"gpu": 0}, "node-0")
    assert refused.status == 409
    node(fleet, "uncordon", {}, "node-0")


def test_events_are_selected_by_what_they_are_about(fleet: Planned) -> None:
    everything = fleet.server.request("GET", "/api/v1/events?limit=500").json["items"]
    assert everything
    for one in everything:
        assert {"reason", "severity", "message", "times", "at", "lastAt"} <= one.keys()
    wrong = fleet.server.request("GET", "/api/v1/events?reason=planed")
    assert wrong.status == 400
    assert "planned" in wrong.json["detail"]
    alarms = fleet.server.request("GET", "/api/v1/events?severity=alarm").json["items"]
    assert all(one["severity"] == "alarm" for one in alarms)


@pytest.mark.slow
def test_an_approved_plan_is_rolled_out_and_one_that_is_undone_leads_back(postgres: DatabaseServer) -> None:
    with planned_fleet(postgres, mode="approve", seconds=35) as fleet:
        first = newest(fleet)["generation"]
        say(fleet, first, "approve")
        fleet.simulation.advance(40, CALM_TICK_SECONDS)
        assert plan(fleet, first)["state"] == "done"
        service = fleet.server.request("GET", "/api/v1/services/shop/a").json
        spec = service["spec"] | {"ratePerSecond": 420.0}
        assert fleet.server.request("PUT", "/api/v1/services/shop/a", {"spec": spec}).status == 200
        fleet.simulation.advance(32, CALM_TICK_SECONDS)
        second = newest(fleet)
        assert (second["state"], second["base"]) == ("proposed", first)
        say(fleet, second["generation"], "approve")
        fleet.simulation.advance(40, CALM_TICK_SECONDS)
        undone = say(fleet, second["generation"], "rollback")
        assert (undone.status, undone.json["to"]) == (202, first)
        fleet.simulation.advance(40, CALM_TICK_SECONDS)
        items = fleet.server.request("GET", "/api/v1/plans").json["items"]
        back = next(one for one in items if one["lane"] == "rollback")
        assert back["base"] == second["generation"]
        shapes = [
            sorted(
                (one["service"], one["node"], one["gpu"], one["smPercent"]) for one in plan(fleet, number)["instances"]
            )
            for number in (first, back["generation"])
        ]
        assert shapes[0] == shapes[1]


@pytest.mark.slow
def test_a_plan_proposed_before_another_was_paused_or_is_to_be_undone_waits_for_it(postgres: DatabaseServer) -> None:
    with planned_fleet(postgres, mode="approve", seconds=35) as fleet:
        first = newest(fleet)["generation"]
        say(fleet, first, "approve")
        second = proposed_for(fleet, 260.0, base=first)
        assert (plan(fleet, first)["state"], plan(fleet, second)["state"]) == ("rolling", "proposed")
        say(fleet, first, "pause")
        refused = say(fleet, second, "approve")
        assert refused.status == 409
        assert f"a person has paused plan {first}" in refused.json["detail"]
        assert (plan(fleet, first)["state"], plan(fleet, second)["state"]) == ("paused", "proposed")
        say(fleet, first, "resume")
        assert say(fleet, second, "approve").json["state"] == "rolling"
        third = proposed_for(fleet, 420.0, base=second)
        assert say(fleet, second, "rollback").status == 202
        refused = say(fleet, third, "approve")
        assert refused.status == 409
        assert f"asked to undo plan {second}" in refused.json["detail"]
        assert plan(fleet, third)["state"] == "proposed"


def proposed_for(fleet: Planned, rate: float, base: int) -> int:
    """Declares another rate, and returns the plan that is proposed for it."""
    spec = fleet.server.request("GET", "/api/v1/services/shop/a").json["spec"] | {"ratePerSecond": rate}
    assert fleet.server.request("PUT", "/api/v1/services/shop/a", {"spec": spec}).status == 200
    fleet.simulation.planner.called_for = Reason.FLEET_APPLIED
    return next(int(row["generation"]) for _ in fleet.simulation.seconds(65) if (row := newest(fleet))["base"] == base)


def plan(fleet: Planned, generation: int) -> dict[str, Any]:
    found: dict[str, Any] = fleet.server.request("GET", f"/api/v1/plans/{generation}").json
    return found
