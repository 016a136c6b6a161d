"""What the gateway has acknowledged counts, and nothing else: not what was said to it, nor what it said before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.routing import REPEAT_SECONDS, GatewayRoutes, list_routes
from agents.seams.routes import Acknowledged, Route, RoutesAway, RouteState
from tests.support.nodes import served


class Gateway:
    """A gateway that does as it is told, or is away."""

    def __init__(self) -> None:
        self.away = False
        self.open_requests: dict[str, int] = {}
        self.told: list[tuple[Route, ...]] = []

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        if self.away:
            raise RoutesAway("nobody answers")
        self.told.append(tuple(routes))
        return Acknowledged(
            tuple(RouteState(one.copy, not one.drained, self.open_requests.get(one.copy, 0)) for one in routes)
        )


class Desk:
    """The routes, the gateway that it talks to, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.gateway = Gateway()
        self.routes = GatewayRoutes(self.gateway, lambda: self.now)

    def say(self, *copies: NodeCopy, after: float = 0.0) -> None:
        self.now += after
        self.routes.bring_up_to_date(list_routes(copies, "127.0.0.1", lambda copy: None, ()))


def copy(stage: Stage, name: str = "a") -> NodeCopy:
    return NodeCopy(f"{name}.1.1", served(name), "GPU-a", stage, port=8000)


READY, DRAINING, ENDING = copy(Stage.READY), copy(Stage.DRAINING), copy(Stage.ENDING)


def test_only_services_that_the_gateway_may_know_are_routes() -> None:
    job = msgspec.structs.replace(served("j"), service="", job="j")
    copies = [copy(stage, stage.value) for stage in Stage] + [NodeCopy("j.1.1", job, "GPU-a", Stage.READY)]
    found = {route.copy.partition(".")[0]: route.drained for route in list_routes(copies, "h", lambda copy: None, ())}
    assert found == {"routing": False, "ready": False, "draining": True, "ending": True}


def test_a_process_that_is_gone_is_no_route() -> None:
    assert list_routes([ENDING], "127.0.0.1", lambda copy: None, {ENDING.id}) == ()


def test_a_copy_is_drained_when_the_gateway_has_said_so_after_it_was_told() -> None:
    desk = Desk()
    desk.say(READY)
    assert not desk.routes.drained(READY)  # it has no open request, and was never told to drain
    desk.say(DRAINING)
    assert desk.routes.drained(DRAINING)


def test_a_copy_with_open_requests_is_asked_after_until_it_has_none() -> None:
    desk = Desk()
    desk.gateway.open_requests = {DRAINING.id: 2}
    desk.say(DRAINING)
    assert not desk.routes.drained(DRAINING)
    desk.gateway.open_requests = {}
    desk.say(DRAINING, after=0.05)  # it was asked just now
    assert not desk.routes.drained(DRAINING)
    desk.say(DRAINING, after=0.1)
    assert desk.routes.drained(DRAINING)


def test_while_the_gateway_is_away_nothing_it_said_counts() -> None:
    desk = Desk()
    desk.say(READY, copy(Stage.DRAINING, "b"))
    desk.gateway.away = True
    desk.say(DRAINING, after=1)
    assert desk.routes.away == "nobody answers"
    assert desk.routes.in_force(DRAINING) is None
    assert not desk.routes.drained(DRAINING)
    assert not desk.routes.drained(copy(Stage.DRAINING, "b"))
    assert not desk.routes.is_forgotten(copy(Stage.READY, "never"))


def test_a_gateway_that_is_back_is_told_again() -> None:
    desk = Desk()
    desk.gateway.away = True
    desk.say(READY)
    desk.gateway.away = False
    desk.say(READY, after=3)
    assert desk.routes.away == ""
    assert desk.routes.in_force(READY) == RouteState(READY.id, True, 0)


def test_a_gateway_that_is_away_is_asked_less_and_less_often() -> None:
    desk = Desk()
    tries = 0

    def declare(routes: Sequence[Route]) -> Acknowledged:
        nonlocal tries
        tries += 1
        raise RoutesAway("nobody answers")

    desk.gateway.declare = declare  # type: ignore[method-assign]
    for _ in range(600):
        desk.say(READY, after=0.05)
    assert 15 <= tries <= 22  # in 30 s


def test_what_does_not_change_is_said_again_every_few_seconds() -> None:
    desk = Desk()
    for _ in range(100):
        desk.say(READY, after=REPEAT_SECONDS / 10)
    assert 9 <= len(desk.gateway.told) <= 11


def test_a_route_is_forgotten_when_the_gateway_has_acknowledged_all_without_it() -> None:
    desk = Desk()
    desk.say(READY, copy(Stage.ENDING, "b"))
    assert not desk.routes.is_forgotten(copy(Stage.ENDING, "b"))
    desk.say(READY)
    assert desk.routes.is_forgotten(copy(Stage.ENDING, "b"))


def test_case_8_a_drain_that_the_gateway_does_not_know_of_has_not_closed_the_copy() -> None:
    desk = Desk()
    desk.gateway.declare = lambda routes: Acknowledged(  # type: ignore[method-assign]
        tuple(RouteState(route.copy, True, 1) for route in routes)
    )
    desk.say(DRAINING)
    assert desk.routes.away == ""
    assert not desk.routes.closed(DRAINING)
    assert not desk.routes.drained(DRAINING)


def test_a_copy_with_open_requests_is_closed_but_not_drained() -> None:
    desk = Desk()
    desk.gateway.open_requests = {DRAINING.id: 2}
    desk.say(DRAINING)
    assert desk.routes.closed(DRAINING)
    assert not desk.routes.drained(DRAINING)
