"""Where no gateway answers, a route counts as in force once the control plane has stored it and still answers later."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agents.contract.reports import Answer, Copy
from agents.gateway.followers import LONGEST_SECONDS, SETTLED_SECONDS, UNKNOWN_SECONDS, Followers
from agents.seams.routes import Route, RouteState

OLD = Route("old", "shop/search", "10.0.0.1:9000", 10.0)
NEW = Route("new", "shop/search", "10.0.0.1:9001", 10.0)
GONE = Route("old", "shop/search", "10.0.0.1:9000", 10.0, drained=True)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A node's followers, and a control plane that stores reports when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.followers = Followers(self.clock)

    def stored(self, *copies: Copy, after: float = 0.0, **gateways: Any) -> None:
        self.clock.now += after
        self.followers.note_stored(copies, Answer(True, 1, datetime(2026, 1, 1, tzinfo=UTC), **gateways))

    def state(self, route: Route) -> RouteState:
        (state,) = self.followers.declare([route]).routes
        return state


def copy(route: Route, stage: str = "") -> Copy:
    return Copy(route.copy, "i-1", 0, stage or ("draining" if route.drained else "routing"), address=route.address)


def test_a_copy_is_routed_when_two_stored_reports_held_it_for_long_enough() -> None:
    site = Site()
    site.stored(copy(NEW))
    assert not site.state(NEW).ready
    site.stored(copy(NEW, "ready"), after=SETTLED_SECONDS)
    assert site.state(NEW).ready
    heavier = Route(NEW.copy, NEW.service, NEW.address, 99.0)
    assert site.state(heavier).ready  # another weight is no other route


def test_case_8_what_no_report_was_stored_with_is_never_in_force() -> None:
    site = Site()
    for _ in range(100):
        assert not site.state(NEW).ready
        assert site.state(GONE).ready, "as far as the node knows, gateways still send requests there"
        site.clock.now += 60


def test_case_8_a_control_plane_that_went_away_after_it_stored_the_route_proves_nothing() -> None:
    site = Site()
    site.stored(copy(OLD), copy(NEW))
    site.clock.now += 3600
    assert not site.state(NEW).ready
    site.stored(copy(OLD), copy(NEW))
    assert site.state(NEW).ready


def test_case_8_an_established_route_stays_in_force_while_the_control_plane_is_away() -> None:
    site = Site()
    site.stored(copy(OLD))
    site.stored(copy(OLD), after=SETTLED_SECONDS)
    site.clock.now += 3600
    assert site.state(OLD).ready


def test_case_8_a_route_waits_for_the_slowest_gateway() -> None:
    site = Site()
    site.stored(copy(NEW), endpoints=7, routed=6)
    site.stored(copy(NEW), after=SETTLED_SECONDS, endpoints=7, routed=6)
    assert not site.state(NEW).ready
    assert site.followers.next_report_seconds(10.0) == SETTLED_SECONDS
    site.stored(copy(NEW), after=SETTLED_SECONDS, endpoints=9, routed=7)
    assert site.state(NEW).ready, "later changes are none of this route's"
    site.stored(copy(NEW), after=SETTLED_SECONDS, endpoints=11, routed=5)
    assert site.state(NEW).ready, "a gateway that starts does not take it back"


def test_a_gateway_that_never_follows_holds_a_route_up_for_a_while_only() -> None:
    site = Site()
    site.stored(copy(NEW), endpoints=7)
    site.stored(copy(NEW), after=LONGEST_SECONDS - 1, endpoints=7)
    assert not site.state(NEW).ready
    site.stored(copy(NEW), after=1, endpoints=7)
    assert site.state(NEW).ready


def test_a_new_copy_waits_for_no_gateway_longer_than_a_step_may_take_though_it_reports() -> None:
    site = Site()
    site.stored(copy(NEW), endpoints=7, behind="edge-1")
    site.stored(copy(NEW), after=LONGEST_SECONDS, endpoints=7, behind="edge-1")
    assert site.state(NEW) == RouteState("new", True, 1)


def test_a_copy_serves_for_as_long_as_a_gateway_reports_and_has_not_taken_its_drain() -> None:
    site = Site()
    site.stored(copy(GONE), endpoints=7, routed=6, behind="edge-1")
    site.stored(copy(GONE), after=LONGEST_SECONDS - 1, endpoints=8, routed=6, behind="edge-1")
    assert site.state(GONE) == RouteState("old", True, 1)
    site.stored(copy(GONE), after=1, endpoints=8, routed=6, behind="edge-1")
    why = "gateway edge-1 has not taken version 7 for half a minute; copies that leave keep serving"
    assert site.state(GONE) == RouteState("old", True, 1, why)
    for _ in range(100):
        site.stored(copy(GONE), after=10, endpoints=9, routed=6, behind="edge-1")
    assert site.state(GONE) == RouteState("old", True, 1, why.replace("half a minute", "17 minutes"))
    site.stored(copy(GONE), after=3, endpoints=9, routed=7)
    assert site.state(GONE) == RouteState("old", False, 0)


def test_a_copy_waits_for_half_a_minute_once_no_gateway_is_known_to_report_and_to_be_behind() -> None:
    site = Site()
    site.stored(copy(GONE), endpoints=7, routed=6, behind="edge-1")
    site.stored(copy(GONE), after=300, endpoints=7, routed=6, behind="edge-1")
    site.stored(copy(GONE), after=LONGEST_SECONDS - 1, endpoints=7, routed=6)
    assert site.state(GONE) == RouteState("old", True, 1)
    site.stored(copy(GONE), after=1, endpoints=7, routed=6)
    assert site.state(GONE) == RouteState("old", False, 0)


def test_a_copy_waits_for_longer_while_it_is_not_known_whether_a_gateway_is_behind() -> None:
    site = Site()
    site.stored(copy(GONE), endpoints=7, routed=6, behind="edge-1")
    site.stored(copy(GONE), after=600, endpoints=7, routed=6, behind="edge-1")
    site.stored(copy(GONE), after=UNKNOWN_SECONDS - 1, endpoints=7, routed=6, gateways_known=False)
    why = "the control plane has not known whether gateways have taken version 7 for 14 minutes"
    assert site.state(GONE) == RouteState("old", True, 1, f"{why}; copies that leave keep serving")
    site.stored(copy(GONE), after=1, endpoints=7, routed=6, gateways_known=False)
    assert site.state(GONE) == RouteState("old", False, 0)
    site.stored(copy(NEW), endpoints=7, gateways_known=False)
    site.stored(copy(NEW), after=LONGEST_SECONDS, endpoints=7, gateways_known=False)
    assert site.state(NEW).ready, "a new copy waits no longer than a step may take"


def test_a_copy_may_get_requests_until_its_drain_was_stored_for_a_while() -> None:
    site = Site()
    site.stored(copy(OLD))
    site.stored(copy(OLD), after=60)
    assert site.state(GONE) == RouteState("old", True, 1)
    site.stored(copy(GONE))
    assert site.state(GONE) == RouteState("old", True, 1)
    site.stored(copy(GONE), after=SETTLED_SECONDS)
    assert site.state(GONE) == RouteState("old", False, 0)


def test_a_route_that_went_and_came_back_waits_again() -> None:
    site = Site()
    site.stored(copy(OLD))
    site.stored(copy(OLD), after=60)
    site.stored(after=1)
    site.stored(copy(OLD), after=1)
    assert not site.state(OLD).ready


def test_a_copy_at_another_address_is_another_route() -> None:
    site = Site()
    site.stored(copy(OLD))
    site.stored(copy(OLD), after=60)
    moved = Route(OLD.copy, OLD.service, "10.0.0.1:9999", 10.0)
    assert not site.state(moved).ready


def test_the_next_report_is_due_soon_only_while_a_route_waits_for_it() -> None:
    site = Site()
    assert site.followers.next_report_seconds(10.0) == 10.0
    site.stored(copy(NEW))
    assert site.followers.next_report_seconds(10.0) == SETTLED_SECONDS
    site.stored(copy(NEW), after=SETTLED_SECONDS)
    assert site.followers.next_report_seconds(10.0) == 10.0
