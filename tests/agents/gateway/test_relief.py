"""Overloads become limits of HAProxy's servers where batches are known, and of the whole service elsewhere."""

from __future__ import annotations

import pytest
from msgspec import structs

from agents.gateway.desired import FOLLOWED, MOST_OPEN, Desired
from agents.gateway.haproxy.configuration import NO_LIMIT, render_limit
from agents.gateway.haproxy.haproxy import ObservedHaproxy
from agents.gateway.haproxy.parsing import ServerState
from agents.gateway.relief import Relief, list_drained
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit

SERVICE = "shop/search"
LIMIT = ServiceLimit(100, 0.3, 7, slo_ms=500.0, percentile=95.0)


def route(copy: str, in_time: int = 0, weight: float = 10.0) -> RouteSpec:
    return RouteSpec(copy, SERVICE, f"10.0.0.1:{9000 + ord(copy)}", weight, in_time=in_time)


def desired(limit: ServiceLimit = LIMIT, **sources: tuple[RouteSpec, ...]) -> Desired:
    declared = {source.replace("__", FOLLOWED): DeclaredRoutes(1, routes) for source, routes in sources.items()}
    return Desired(declared, {SERVICE: 1}, limits={SERVICE: limit})


def looked(state: Desired) -> Desired:
    relief = Relief()
    assert relief.look(state, None, {SERVICE: (0, 0)}, {1: 3}, {}, 1.0) == bool(relief.most_open)
    return relief.applied(state)


def test_servers_have_limits_and_no_share_is_rejected_where_batches_are_known() -> None:
    applied = looked(desired(__n1=(route("a", 8), route("b", 16))))
    assert {server.copy: server.most_open for server in applied.servers()} == {"a": 8, "b": 16}
    assert render_limit(applied.limits[SERVICE]) == "0:100:7:1"


def test_the_limit_of_the_service_leaves_room_for_all_copies() -> None:
    short = ServiceLimit(16, 0.3, 7, slo_ms=500.0, percentile=95.0)
    applied = looked(desired(short, __n1=(route("a", 8), route("b", 16))))
    assert render_limit(applied.limits[SERVICE]) == "0:24:7:1"


def test_a_copy_that_its_node_declares_here_counts_as_the_control_plane_says() -> None:
    applied = looked(desired(n1=(route("a"), route("b")), __n1=(route("a", 8), route("b", 16))))
    assert {server.name: server.most_open for server in applied.servers()} == {"n1:a": 8, "n1:b": 16}


def test_of_unknown_batches_the_share_is_rejected_as_before() -> None:
    state = desired(__n1=(route("a"), route("b")))
    assert looked(state) == state
    assert {server.most_open for server in state.servers()} == {MOST_OPEN}
    assert render_limit(state.limits[SERVICE]) == "300000:100:7:0"


def test_a_service_without_a_plan_for_any_of_it_rejects_all() -> None:
    state = desired(ServiceLimit(16, 1.0, 30, slo_ms=500.0, percentile=95.0), __n1=(route("a", 8),))
    assert looked(state) == state


def test_a_limit_has_as_many_parts_as_none() -> None:
    assert len(render_limit(LIMIT).split(":")) == len(NO_LIMIT.split(":"))


def test_what_a_drained_copy_still_holds_keeps_no_other_from_requests() -> None:
    leaving, stays = structs.replace(route("a"), drained=True), route("b")
    limit = ServiceLimit(16, 0.0, 7, slo_ms=500.0, percentile=95.0)
    state, relief = desired(limit, n1=(leaving, stays)), Relief()
    assert list_drained(state) == {"n1:a"}
    assert relief.look(state, None, {}, {1: 17}, {1: 16}, 1.0)
    assert relief.applied(state).limits[SERVICE].queue_limit == 32
    assert not relief.look(state, None, {}, {1: 9}, {1: 8}, 1.5), "HAProxy is told once that it is more"
    assert relief.look(state, None, {}, {1: 1}, {}, 2.0)
    assert relief.applied(state).limits[SERVICE].queue_limit == 16
    assert not relief.look(state, None, {}, {1: 3}, {1: 3}, 2.5), "a few do not matter"


def test_only_copies_that_get_requests_and_run_count_as_ready() -> None:
    routes = tuple(structs.replace(route(name, 8), drained=name == "a") for name in "abcd")
    running, failed = ServerState("10.0.0.1", 80, 256, 0, 2), ServerState("10.0.0.1", 80, 256, 0, 0)
    observed = ObservedHaproxy((), {"_n1:a": running, "_n1:b": failed, "_n1:c": running}, {}, frozenset(), 0)
    relief = Relief()
    assert relief.look(desired(__n1=routes), observed, {}, {}, {}, 1.0)
    assert relief.by_server == {"_n1:c": 8, "_n1:d": 8}, "of one that is added it is not known yet"
    assert relief.most_open == {SERVICE: 16}


@pytest.mark.parametrize(
    ("change", "is_limited"),
    [
        ({}, True),
        ({"slo_ms": 0.5}, True),
        ({"slo_ms": 0.0}, False),
        ({"queue_limit": 0}, False),
        ({"tpot_ms": 9}, False),
    ],
)
def test_services_with_a_promise_of_whole_answers_and_a_limit_are_looked_at(
    change: dict[str, float], is_limited: bool
) -> None:
    relief = Relief()
    state = desired(structs.replace(LIMIT, **change), __n1=(route("a", 8),))
    assert relief.look(state, None, {SERVICE: (7, 1)}, {1: 3}, {}, 1.0) is is_limited
    assert relief.most_open == ({SERVICE: 8} if is_limited else {})
    assert (relief.applied(state) == state) is not is_limited
    assert relief.open == {SERVICE: 3}


def test_no_room_is_made_where_nothing_leaves() -> None:
    relief = Relief()
    state = desired(ServiceLimit(4, 0.0, 7, slo_ms=500.0), n1=(route("a"),))
    assert not relief.look(state, None, {}, {}, {}, 1.0)
    assert (relief.leaving, relief.open, relief.applied(state)) == ({}, {SERVICE: 0}, state)
    assert relief.look(state, None, {}, {1: 1}, {1: 1}, 1.5)
    assert relief.leaving == {SERVICE: 1}
    assert render_limit(relief.applied(state).limits[SERVICE]) == "0:5:7:0"
