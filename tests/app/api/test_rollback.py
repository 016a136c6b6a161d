"""A rollback makes a new plan of an old one, judged today; then plans wait for approval until a person resumes."""

from __future__ import annotations

from typing import Any

import pytest

from app.control.domain.events import Reason
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer


def plans(fleet: Planned) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fleet.server.request("GET", "/api/v1/plans").json["items"]
    return found


def current(fleet: Planned) -> dict[str, Any]:
    found: dict[str, Any] = fleet.server.request("GET", "/api/v1/plans/current").json
    return found


def change(fleet: Planned, path: str, **fields: Any) -> None:
    spec = fleet.server.request("GET", f"/api/v1/{path}").json["spec"] | fields
    assert fleet.server.request("PUT", f"/api/v1/{path}", {"spec": spec}).status == 200


def newer_than(fleet: Planned, generation: int) -> dict[str, Any]:
    """Returns the first plan after this one, which the next cycles make."""
    for _ in range(5):
        fleet.simulation.planner.cycle(Reason.CYCLE)
        found = [plan for plan in plans(fleet) if plan["generation"] > generation]
        if found:
            return found[-1]
    raise AssertionError(f"no plan came after {generation}")


def said(fleet: Planned, reason: str) -> list[str]:
    events = fleet.server.request("GET", f"/api/v1/events?reason={reason}").json["items"]
    return [event["message"] for event in events]


def hold(fleet: Planned) -> dict[str, Any]:
    found: dict[str, Any] = fleet.server.request("GET", "/api/v1/plans/hold").json
    return found


@pytest.mark.slow
def test_an_old_plan_comes_back_if_right_today_and_the_fleet_waits_until_resumed(
    postgres: DatabaseServer,
) -> None:
    with planned_fleet(postgres, seconds=35.0) as fleet:
        first = current(fleet)["generation"]
        assert hold(fleet) == {"kind": "PlanHold", "held": False}
        change(fleet, "services/shop/a", ratePerSecond=420.0)
        second = newer_than(fleet, first)["generation"]
        post = fleet.server.request
        for to, detail in ((second, "is the one in force"), (second + 1, "does not exist")):
            refused = post("POST", f"/api/v1/plans/{second}/rollback?to={to}", b"")
            assert detail in refused.json["detail"]
        asked = post("POST", f"/api/v1/plans/{second}/rollback?to={first}", b"")
        assert (asked.status, asked.json["to"]) == (202, first)
        back = newer_than(fleet, second)
        assert (back["lane"], back["base"]) == ("rollback", second)
        late = post("POST", f"/api/v1/plans/{second}/rollback", b"")
        again = f"to go back to plan {second}: gpuwright plan rollback {back['generation']} --to {second}"
        assert late.status == 409 and again in late.json["detail"]
        assert back["bound"] is None, "the old bound was proved for other rates"
        assert back["unservedPerSecond"] > plans(fleet)[-1]["unservedPerSecond"], "today's rate is the larger one"
        assert hold(fleet)["generation"] == back["generation"]
        assert "until a person resumes the fleet" in said(fleet, "rolled_back")[0]
        waiting = newer_than(fleet, back["generation"])
        assert waiting["state"] == "proposed", "the policy's mode is auto, and the fleet waits all the same"
        assert post("DELETE", "/api/v1/plans/hold").json == {"kind": "PlanHold", "held": False}
        assert post("DELETE", "/api/v1/plans/hold").status == 409
        followed = newer_than(fleet, waiting["generation"])
        assert followed["state"] in ("rolling", "done")
        entries = post("GET", "/api/v1/audit?kind=Plan&name=fleet").json["items"]
        assert [entry["verb"] for entry in entries] == ["resume"]
        _is_refused(fleet, followed["generation"], first)


def _is_refused(fleet: Planned, generation: int, to: int) -> None:
    change(fleet, "policies/default", clientsPerGpu=1)
    assert fleet.server.request("POST", f"/api/v1/plans/{generation}/rollback?to={to}", b"").status == 202
    fleet.simulation.planner.cycle(Reason.CYCLE)
    refusal = said(fleet, "rollback_refused")[0]
    assert refusal.startswith(f"plan {to} breaks rules today: ")
    assert "clients_fit: 2 instances and jobs, over clientsPerGpu 1" in refusal
    assert hold(fleet)["held"] is False
