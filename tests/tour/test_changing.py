"""Plans that a person decides about: one that is proposed, and one that is taken back."""

from __future__ import annotations

import pytest

from tests.tour.running import TourFleet
from tests.tour.world import served

pytestmark = pytest.mark.timeout(240)  # the fleet comes to rest several times


def test_a_plan_in_mode_approve_is_carried_out_once_it_is_approved(fleet: TourFleet) -> None:
    with fleet.declared(served("careful", "approver", mode="approve")):
        fleet.until(lambda: bool(fleet.proposed()), "a plan is proposed")
        assert fleet.copies("approver/careful") == []

        def approved() -> bool:
            # A proposal gives way to a newer one when its basis changes: the newest counts.
            for generation in fleet.proposed():
                fleet.request("POST", f"/api/v1/plans/{generation}/approve?message=tour", b"")
            return bool(fleet.copies("approver/careful"))

        fleet.until(approved, "it is carried out")
    verbs = {entry["verb"] for entry in fleet.get("audit?kind=Plan")["items"]}
    assert "approve" in verbs


def test_a_rollback_brings_the_plan_before_back_and_plans_wait_until_the_fleet_is_resumed(fleet: TourFleet) -> None:
    small, large = (served("regretted", "hasty", ratePerSecond=rate) for rate in (20, 700))
    with fleet.declared(small):
        fleet.until(lambda: bool(fleet.copies("hasty/regretted")), "it is served")
        before, share = fleet.settled(), fleet.sm_percent("hasty/regretted")
        assert fleet.request("POST", "/api/v1/apply", [large]).status == 200
        fleet.until(lambda: fleet.sm_percent("hasty/regretted") > share, "its share has grown with its rate")
        try:
            refused = fleet.cli("plan", "rollback", code=2)
            assert "nothing was undone: there is no terminal to ask on; give --yes" in refused
            fleet.cli("plan", "rollback", str(fleet.settled()), "--to", str(before), "--yes")
            fleet.until(lambda: fleet.sm_percent("hasty/regretted") == share, "its share is as before")
            assert fleet.get("plans/hold")["held"] is True
            fleet.until(lambda: bool(fleet.proposed()), "what the new rate needs is only proposed")
        finally:
            if fleet.get("plans/hold")["held"]:
                fleet.cli("plan", "resume", "--fleet")
        fleet.until(lambda: fleet.sm_percent("hasty/regretted") > share, "the fleet follows the rate again")
        asked = [plan["why"] for plan in fleet.get("plans")["items"] if plan["reason"] == "operator"]
        assert asked and all("asked for it: " in why for why in asked), asked
        (resumed,) = fleet.get("events?reason=fleet_resumed")["items"]
        assert "resumed the fleet, which was held since plan" in resumed["message"]
