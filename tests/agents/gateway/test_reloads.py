"""Under load: copies are swapped, HAProxy is reloaded and the sidecar killed at random moments; no request is lost."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from agents.gateway.client import SidecarRoutes
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket, WorkerGone
from agents.gateway.haproxy.parsing import parse_info
from tests.agents.gateway.test_routes import answering, ready
from tests.support.haproxy import Copies, Gateway, get, insist
from tests.support.load import steady_load
from tests.support.patience import patience, until
from tests.support.soak import scaled

pytestmark = pytest.mark.slow


def swap(routes: SidecarRoutes, copies: Copies, old: int, new: int) -> None:
    """As the agent does it. What was drained, and has no open request, must never get another one."""
    both = [copies.route(old), copies.route(new)]
    until(lambda: insist(routes, both).routes[1].ready, "the new copy is ready")
    drained = [copies.route(old, drained=True), copies.route(new)]
    until(lambda: insist(routes, drained).routes[0].open_requests == 0, "the old copy has no request")
    had = copies.requests(old)
    time.sleep(0.02)
    assert copies.requests(old) == had, "a request came after the last"
    insist(routes, [copies.route(new)])
    assert copies.requests(old) == had, "a request came after the last"


def reload(gateway: Gateway) -> None:
    """Until another process takes connections."""
    first = _process(gateway)
    gateway.reload()
    until(lambda: _process(gateway) not in ("", first), "another process takes connections")


@contextmanager
def at_random_moments(what: Callable[[], None], seed: int, mean_seconds: float) -> Iterator[list[int]]:
    """Do it in a thread, over and over; how often is in the list."""
    done, count = threading.Event(), [0]
    moments = random.Random(seed)

    def run() -> None:
        while not done.wait(moments.uniform(0, 2 * mean_seconds)):
            what()
            count[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        done.set()
        thread.join()


def test_swaps_and_reloads_at_random_moments_lose_no_request(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0)])
    with (
        steady_load(gateway.port, "/shop/search/x?ms=8", rate_per_second=100, method="POST", body="{}") as load,
        at_random_moments(gateway.reload, seed=1, mean_seconds=0.4) as reloads,
    ):
        round_ = 0
        while reloads[0] < scaled(60, 4):
            swap(routes, copies, round_ % 8, (round_ + 1) % 8)
            round_ += 1
        outcome = load.stop()
    assert outcome.failed == ()
    assert set(answering(gateway)) == {copies.ports[round_ % 8]}


def test_a_reload_changes_nothing(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    declared = [copies.route(0, weight=10), copies.route(1, weight=5), copies.route(2, drained=True)]
    before = routes.declare(declared)
    state = _state(gateway)
    reload(gateway)
    assert _state(gateway) == state
    assert ready(insist(routes, declared)) == ready(before)


def test_a_reload_that_fails_for_a_mistake_in_the_base_stops_nothing(gateway: Gateway, copies: Copies) -> None:
    routes, path = gateway.routes(), gateway.folder / "haproxy.cfg"
    routes.declare([copies.route(0)])
    path.write_text(path.read_text() + "\nfrontend mistaken\n    nonsense\n")
    gateway.reload()

    def failed() -> bool:
        with suppress(HaproxyAway):
            return "[failed: 1]" in MasterSocket(gateway.master).ask("show proc")
        return False

    until(failed, "HAProxy has refused its configuration")
    assert insist(routes, [copies.route(1)]).routes[0].ready
    assert answering(gateway) == {copies.ports[1]: 8}


def test_what_an_old_process_still_answers_is_counted_as_open(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0)])
    slow: list[tuple[int, str, str]] = []
    caller = threading.Thread(target=lambda: slow.append(get(gateway, "/shop/search/slow?held")))
    caller.start()
    until(lambda: routes.declare([copies.route(0)]).routes[0].open_requests == 1, "the slow request is seen")
    for _ in range(2):
        reload(gateway)
    drained = [copies.route(0, drained=True), copies.route(1)]
    assert insist(routes, drained).routes[0].open_requests == 1
    assert answering(gateway) == {copies.ports[1]: 8}
    copies.release(0)
    until(lambda: insist(routes, drained).routes[0].open_requests == 0, "the old process has ended")
    caller.join(patience())
    assert slow[0][0] == 200


def test_a_caller_whose_connection_an_old_process_holds_is_served_by_the_copies_of_now(
    gateway: Gateway, copies: Copies
) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0)])
    kept = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=patience())
    try:
        kept.request("POST", "/shop/search/x", "{}")
        assert kept.getresponse().read() == b"%d /x" % copies.ports[0]
        reload(gateway)
        insist(routes, [copies.route(1)])
        assert insist(routes, [copies.route(1)]).routes[0].ready
        had = copies.requests(0)
        kept.request("POST", "/shop/search/y", "{}")
        assert kept.getresponse().read() == b"%d /y" % copies.ports[1]
        assert copies.requests(0) == had
        until(lambda: sum(one.requests for one in routes.counters().values()) == 2, "each is counted once")
    finally:
        kept.close()


def test_a_sidecar_killed_at_random_moments_converges_and_forgets_nothing(gateway: Gateway, copies: Copies) -> None:
    routes, other = gateway.routes(), gateway.routes("node-2")
    routes.declare([copies.route(0)])
    other.declare([copies.route(7, "shop/other")])

    def kill_and_start() -> None:
        gateway.kill_sidecar()
        gateway.start_sidecar()

    with (
        steady_load(gateway.port, "/shop/search/x?ms=8", rate_per_second=50, method="POST", body="{}") as load,
        at_random_moments(kill_and_start, seed=2, mean_seconds=0.5) as kills,
    ):
        round_ = 0
        while kills[0] < scaled(60, 2):
            swap(routes, copies, round_ % 6, (round_ + 1) % 6)
            round_ += 1
        outcome = load.stop()
    assert outcome.failed == ()
    gateway.await_sidecar()
    assert set(answering(gateway, "/shop/other/x")) == {copies.ports[7]}


def test_what_somebody_else_did_at_the_runtime_socket_is_put_right(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0), copies.route(1)])
    gateway.ask("set server gw-0001/node-1:copy-0 weight 1")
    gateway.ask("set server gw-0001/node-1:copy-1 state maint")
    gateway.ask("add server gw-0001/node-9:stranger 127.0.0.1:1")
    gateway.ask(f"del map {gateway.state}/services.map shop/search")
    until(lambda: set(_state(gateway)) == {"node-1:copy-0", "node-1:copy-1"}, "the stranger is gone")
    until(lambda: {weight for _, weight in _state(gateway).values()} == {"256"}, "weights are as declared")
    until(lambda: len(answering(gateway)) == 2, "both answer")


def _process(gateway: Gateway) -> str:
    """Which process takes connections; empty while HAProxy cannot say."""
    with suppress(HaproxyAway, WorkerGone):
        return parse_info(gateway.ask("show info"))["Pid"]
    return ""


def _state(gateway: Gateway) -> dict[str, tuple[str, str]]:
    """Address and weight of every server of ours."""
    rows = [line.split(" ") for line in gateway.ask("show servers state gw-0001").splitlines()[2:]]
    return {row[3]: (row[4], row[7]) for row in rows}
