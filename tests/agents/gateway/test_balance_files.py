"""HAProxy chooses by tokens in flight as its files say: with other times, without Lua, and after files of before."""

from __future__ import annotations

import http.client
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from agents.gateway.desired import Desired, declare, follow, give_slots
from agents.gateway.following import Followed
from agents.gateway.haproxy.configuration import MOST_COPIES, list_copies
from agents.gateway.haproxy.haproxy import Haproxy
from agents.gateway.haproxy.master_socket import MasterSocket
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import DeclaredRoutes, RouteSpec
from tests.agents.gateway.test_balance import BACKEND, PROMISES, SERVICE, SHORT
from tests.support.haproxy import Copies, Gateway
from tests.support.patience import patience, until


@pytest.mark.slow
def test_requests_that_time_out_are_in_flight_no_longer(tmp_path: Path, copies: Copies) -> None:
    gateway = Gateway(tmp_path / "gateway")
    with closing(gateway), ThreadPoolExecutor(4) as pool:
        routes = (RouteSpec("c0", SERVICE, f"127.0.0.1:{copies.ports[0]}"),)
        desired = declare(follow(Desired(), {}, {SERVICE: PROMISES}), "node-1", DeclaredRoutes(1, routes))
        Haproxy(MasterSocket(gateway.master), gateway.state, gateway.requests).write(give_slots(desired, idle=()))
        path = gateway.state / "gpuwright.cfg"
        text = path.read_text().replace("timeout server 600s", "timeout server 8s").replace("maxconn 512", "maxconn 2")
        path.write_text(text.replace("timeout queue 10s", "timeout queue 500ms"))
        gateway.start_haproxy()

        def send(_: int) -> int:
            with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=patience())) as connection:
                connection.request("POST", "/lab/chat/v1/completions?ms=60000", SHORT)
                return connection.getresponse().status

        answers = [pool.submit(send, at) for at in range(4)]
        until(lambda: gateway.ask("show gpuwright tokens") == f"{BACKEND} node-1:c0 2068 2", "two are in flight")
        assert Counter(each.result() for each in answers) == {503: 2, 504: 2}
        until(lambda: not gateway.ask("show gpuwright tokens"), "nothing is in flight")


def test_without_lua_requests_go_by_open_requests(tmp_path: Path, copies: Copies) -> None:
    gateway = Gateway(tmp_path / "gateway")
    with closing(gateway), ThreadPoolExecutor(4) as pool:
        routes = tuple(RouteSpec(f"c{at}", SERVICE, f"127.0.0.1:{copies.ports[at]}") for at in range(2))
        desired = declare(follow(Desired(), {}, {SERVICE: PROMISES}), "node-1", DeclaredRoutes(1, routes))
        Haproxy(MasterSocket(gateway.master), gateway.state, gateway.requests).write(give_slots(desired, idle=()))
        path = gateway.state / "gpuwright.cfg"
        path.write_text(path.read_text().replace("feature(LUA)", "feature(OBSOLETE_LINKER)"))
        gateway.start_haproxy()

        def send(_: int) -> str:
            with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=patience())) as connection:
                connection.request("POST", "/lab/chat/v1/completions?ms=500", SHORT)
                return connection.getresponse().read().decode().split()[0]

        assert sorted(Counter(pool.map(send, range(4))).values()) == [2, 2]


def test_a_service_of_very_many_copies_goes_by_open_requests() -> None:
    def listed(count: int, name: str = "c") -> dict[str, str]:
        routes = tuple(RouteSpec(f"{name}{at}", SERVICE, f"10.0.0.1:{1000 + at}") for at in range(count))
        desired = declare(follow(Desired(), {}, {SERVICE: PROMISES}), "node-1", DeclaredRoutes(1, routes))
        return list_copies(give_slots(desired, idle=()))

    assert listed(2) == {SERVICE: "node-1:c0=256=512,node-1:c1=256=512"}
    assert listed(MOST_COPIES).keys() == {SERVICE}
    assert listed(MOST_COPIES + 1) == {}
    assert listed(MOST_COPIES, "c" * 80) == {}
    assert listed(0) == {}


@pytest.mark.slow
def test_a_haproxy_that_knows_no_map_of_copies_is_reloaded(tmp_path: Path, copies: Copies) -> None:
    gateway = Gateway(tmp_path / "gateway")
    with closing(gateway):
        path = gateway.state / "gpuwright.cfg"
        before = [line for line in path.read_text().splitlines() if "copies.map" not in line and "-choose" not in line]
        path.write_text("\n".join(before) + "\n")
        gateway.start_haproxy()
        shown = f"show map {gateway.state}/copies.map"
        assert gateway.ask(shown).startswith("Unknown map")
        with closing(Sidecar(gateway.state, gateway.master, gateway.requests)) as sidecar:
            sidecar.follow(Followed({}, {SERVICE: PROMISES}, ()))
            route = RouteSpec("c0", SERVICE, f"127.0.0.1:{copies.ports[0]}")
            sidecar.declare("node-1", DeclaredRoutes(1, (route,)))
            assert gateway.ask(shown).endswith(f"{SERVICE} node-1:c0=256=512")
