"""Routes through the real HAProxy: added, weighted, drained and removed, and acknowledged when in force."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from agents.gateway.balances import FIRST_SLOTS
from agents.gateway.client import SidecarRoutes
from agents.gateway.haproxy.parsing import parse_loads
from agents.seams.routes import Acknowledged, Route, RoutesAway
from tests.support.haproxy import ANY_PATH, Copies, Gateway, get
from tests.support.load import steady_load
from tests.support.patience import until
from tests.support.ports import free_port

pytestmark = pytest.mark.slow


def answering(gateway: Gateway, path: str = "/shop/search/x", times: int = 8) -> Counter[int]:
    """Which copy answered how often, by its port."""
    return Counter(int(get(gateway, path)[1].split()[0]) for _ in range(times))


def ready(acknowledged: Acknowledged) -> dict[str, bool]:
    return {route.copy: route.ready for route in acknowledged.routes}


def test_a_route_is_in_force_when_it_is_acknowledged(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    assert get(gateway)[0] == 404
    assert ready(routes.declare([copies.route(0)])) == {"copy-0": True}
    assert get(gateway, "/shop/search/v2/models/x/infer?a=1") == (200, f"{copies.ports[0]} /v2/models/x/infer?a=1", "")
    assert get(gateway, "/shop/search") == (200, f"{copies.ports[0]} /", "")


def test_copies_share_requests_by_their_weights_over_all_sources(gateway: Gateway, copies: Copies) -> None:
    gateway.routes("node-1").declare([copies.route(0, weight=30)])
    gateway.routes("node-2").declare([copies.route(1, weight=10)])
    assert 27 <= answering(gateway, times=40)[copies.ports[0]] <= 33
    gateway.routes("node-2").declare([copies.route(1, weight=30)])
    assert 17 <= answering(gateway, times=40)[copies.ports[0]] <= 23


def test_a_drained_copy_gets_nothing_new_and_tells_of_what_it_still_answers(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0)])
    slow: list[tuple[int, str, str]] = []
    caller = threading.Thread(target=lambda: slow.append(get(gateway, "/shop/search/slow?ms=700")))
    caller.start()
    until(lambda: routes.declare([copies.route(0)]).routes[0].open_requests == 1, "the slow request is seen")
    draining = routes.declare([copies.route(0, drained=True), copies.route(1)])
    assert ready(draining) == {"copy-0": False, "copy-1": True}
    assert draining.routes[0].open_requests == 1
    assert answering(gateway) == {copies.ports[1]: 8}
    caller.join()
    assert slow[0][0] == 200
    until(
        lambda: routes.declare([copies.route(0, drained=True), copies.route(1)]).routes[0].open_requests == 0,
        "it has none left",
    )
    assert ready(routes.declare([copies.route(0), copies.route(1)])) == {"copy-0": True, "copy-1": True}
    assert answering(gateway) == {copies.ports[0]: 4, copies.ports[1]: 4}


def test_a_copy_that_is_removed_amid_a_request_finishes_it_and_can_come_back(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0)])
    slow: list[tuple[int, str, str]] = []
    caller = threading.Thread(target=lambda: slow.append(get(gateway, "/shop/search/slow?ms=900")))
    caller.start()
    until(lambda: routes.declare([copies.route(0)]).routes[0].open_requests == 1, "the slow request is seen")
    routes.declare([copies.route(1)])
    assert answering(gateway) == {copies.ports[1]: 8}
    assert "node-1:copy-0" in gateway.ask("show servers state")
    assert ready(routes.declare([copies.route(0), copies.route(1)])) == {"copy-0": True, "copy-1": True}
    routes.declare([copies.route(1)])
    caller.join()
    assert slow[0][0] == 200
    until(lambda: "node-1:copy-0" not in gateway.ask("show servers state"), "it is deleted")


def refused(gateway: Gateway, server: str) -> int:
    """Returns how many requests a server has had, if it has none now."""
    loads = parse_loads(gateway.ask("show stat -1 4 -1"))
    return next((load.total for (_, name), load in loads.items() if name == server and not load.open), 0)


def test_a_copy_that_died_is_deleted_after_the_last_request_that_it_refused_has_gone_on(
    gateway: Gateway, copies: Copies
) -> None:
    routes = gateway.routes()
    routes.declare([Route("dead", "shop/search", f"127.0.0.1:{free_port()}", 100, paths=ANY_PATH)])
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(get, gateway) for _ in range(4)]
        until(lambda: refused(gateway, "node-1:dead"), "they wait for their next try")
        routes.declare([])
        while not any(answer.done() for answer in answers):
            listed = gateway.ask("show servers state")
            assert "dead" in listed or any(answer.done() for answer in answers)
        assert {answer.result()[0] for answer in answers} == {503}
    until(lambda: "dead" not in gateway.ask("show servers state"), "it is deleted")


def test_a_service_whose_last_copy_went_asks_its_callers_to_come_again(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0)])
    assert routes.declare([]).routes == ()
    assert get(gateway) == (503, "no copy is ready", "2")
    assert "copy-0" not in gateway.ask("show servers state")
    routes.declare([copies.route(0, drained=True)])
    assert get(gateway) == (503, "no copy is ready", "2")


def test_a_copy_that_is_dead_costs_no_request_and_is_told_as_not_ready(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    dead = Route("dead", "shop/search", "127.0.0.1:1", 100, paths=ANY_PATH)
    routes.declare([copies.route(0), dead])
    assert {get(gateway, method="POST")[0] for _ in range(8)} == {200}
    until(lambda: ready(routes.declare([copies.route(0), dead])) == {"copy-0": True, "dead": False}, "its check fails")


def test_a_refusal_is_repeated_elsewhere_only_when_it_may_be(gateway: Gateway, copies: Copies) -> None:
    gateway.routes().declare([copies.route(0), copies.route(1)])
    assert get(gateway, "/shop/search/broken", "POST")[0] == 503
    before = gateway.routes().counters()
    assert get(gateway, "/shop/search/broken")[0] == 503  # both refuse: tried until HAProxy gives up
    until(lambda: sum(one.errors for one in gateway.routes().counters().values()) == 2, "both are counted once")
    assert sum(one.errors for one in before.values()) <= 1
    assert int(_cell(gateway, "wretr")) > 0


def _cell(gateway: Gateway, column: str) -> str:
    lines = gateway.ask("show stat").splitlines()
    row = next(line for line in lines if line.startswith("gw-0001,BACKEND,"))
    return row.split(",")[lines[0].removeprefix("# ").split(",").index(column)]


def test_two_sources_do_not_disturb_each_other(gateway: Gateway, copies: Copies) -> None:
    one, two = gateway.routes("node-1"), gateway.routes("node-2")
    one.declare([copies.route(0)])
    two.declare([replace(copies.route(1), copy="copy-0"), copies.route(2, "shop/other")])
    assert answering(gateway) == {copies.ports[0]: 4, copies.ports[1]: 4}
    one.declare([])
    assert answering(gateway) == {copies.ports[1]: 8}
    assert answering(gateway, "/shop/other/x") == {copies.ports[2]: 8}


def test_a_stale_word_is_refused_and_changes_nothing(gateway: Gateway, copies: Copies) -> None:
    old = gateway.routes()
    old.declare([copies.route(0)])
    new = gateway.routes()
    new.declare([copies.route(1)])
    with pytest.raises(RoutesAway, match="stale"):
        old.declare([copies.route(2)])
    assert answering(gateway) == {copies.ports[1]: 8}
    old.declare([copies.route(2)])  # it knows now, and speaks as the last
    assert answering(gateway) == {copies.ports[2]: 8}


def test_more_services_than_slots_cost_no_request(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    few = [copies.route(0)]
    routes.declare(few)
    many = [replace(copies.route(0, f"shop/s{index}"), copy=f"c{index}") for index in range(FIRST_SLOTS + 3)]
    with steady_load(gateway.port, "/shop/search/x", rate_per_second=100) as load:
        assert all(ready(routes.declare(few + many)).values())
        routes.declare(few)
        outcome = load.stop()
    assert outcome.failed == ()


def test_nobody_answers_without_haproxy_and_what_was_said_is_kept(gateway: Gateway, copies: Copies) -> None:
    assert gateway.haproxy
    gateway.haproxy.terminate()
    gateway.haproxy.wait()
    routes: SidecarRoutes = gateway.routes()
    with pytest.raises(RoutesAway, match="not_in_force"):
        routes.declare([copies.route(0)])
    gateway.start_haproxy()
    until(lambda: get(gateway)[0] == 200, "it starts with what was declared")
    assert ready(routes.declare([copies.route(0)])) == {"copy-0": True}
