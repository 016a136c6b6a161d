"""A route that HAProxy refuses: it is left out and named, and stops neither the others nor HAProxy's next start."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agents.contract.gateways import LeftOutRoute
from agents.gateway import desired, state_file
from agents.gateway.balances import FIRST_SLOTS
from agents.gateway.desired import FOLLOWED
from agents.gateway.following import Followed
from agents.gateway.sidecar import Sidecar
from agents.gateway.state_file import DesiredFile, SavedRoutes
from agents.gateway.wire import DeclaredRoutes, RouteSpec
from tests.support.haproxy import Copies, Gateway, running_copies
from tests.support.patience import patience, until

REFUSED = {"10.66.0.1:80": "2001:db8::1%nowhere", "10.66.0.2:80": "2001:db8::1%;x"}
_split = desired.split_address


def misread(address: str) -> tuple[str, int]:
    """Stands in for an address that we accept and HAProxy does not."""
    return (REFUSED[address], 80) if address in REFUSED else _split(address)


@pytest.fixture(scope="module")
def echo() -> Iterator[Copies]:
    with running_copies(2) as running:
        yield running


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    started = Gateway(tmp_path / "gateway")
    try:
        started.start_haproxy()
        yield started
    finally:
        started.close()


@pytest.fixture
def sidecar(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sidecar]:
    monkeypatch.setattr(desired, "split_address", misread)
    started = Sidecar(gateway.state, gateway.master, gateway.requests)
    yield started
    started.close()


def status(gateway: Gateway, service: str = "shop/search") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=patience())
    try:
        connection.request("GET", f"/{service}/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def spec(name: str, address: str, service: str = "shop/search") -> RouteSpec:
    return RouteSpec(name, service, address)


@pytest.mark.slow
@pytest.mark.parametrize("address", sorted(REFUSED))
def test_case_23_a_refused_route_stops_no_other(gateway: Gateway, sidecar: Sidecar, echo: Copies, address: str) -> None:
    here = f"127.0.0.1:{echo.ports[0]}"
    routes = {f"{FOLLOWED}node-1": DeclaredRoutes(0, (spec("wrong", address), spec("good", here)))}
    sidecar.follow(Followed(routes, {}, ()))
    assert status(gateway) == 200
    assert sidecar.condition().in_force
    (left_out,) = sidecar.condition().left_out
    assert (left_out.node, left_out.copy) == ("node-1", "wrong")
    other = {f"{FOLLOWED}node-2": DeclaredRoutes(0, (spec("other", f"127.0.0.1:{echo.ports[1]}", "lab/other"),))}
    sidecar.follow(Followed({**routes, **other}, {}, ()))
    assert status(gateway, "lab/other") == 200, "another tenant's new service takes effect"
    kept = (gateway.state / "desired.json").read_text() + (gateway.state / "gpuwright.cfg").read_text()
    assert "wrong" not in kept


@pytest.mark.slow
def test_case_23_a_reload_that_a_refused_route_comes_with_succeeds(
    gateway: Gateway, sidecar: Sidecar, echo: Copies
) -> None:
    here = f"127.0.0.1:{echo.ports[0]}"
    many = tuple(spec(f"c{number}", here, f"shop/s{number}") for number in range(FIRST_SLOTS + 1))
    sidecar.follow(Followed({f"{FOLLOWED}node-1": DeclaredRoutes(0, (*many, spec("wrong", "10.66.0.1:80")))}, {}, ()))
    assert sidecar.condition().in_force
    assert status(gateway, f"shop/s{FIRST_SLOTS}") == 200
    assert [route.copy for route in sidecar.condition().left_out] == ["wrong"]


@pytest.mark.slow
def test_a_source_that_declares_a_refused_route_is_told_which_routes_are_in_force(
    gateway: Gateway, sidecar: Sidecar, echo: Copies
) -> None:
    here = f"127.0.0.1:{echo.ports[0]}"
    declared = DeclaredRoutes(1, (spec("wrong", "10.66.0.1:80"), spec("good", here)))
    for _ in range(2):  # the same declaration again is no other one
        in_force = sidecar.declare("node-1", declared)
        assert [(route.copy, route.ready) for route in in_force.routes] == [("wrong", False), ("good", True)]
    mended = sidecar.declare("node-1", DeclaredRoutes(2, (spec("wrong", here),)))
    assert [route.ready for route in mended.routes] == [True]
    assert sidecar.condition().left_out == ()


@pytest.mark.slow
def test_a_mapped_address_is_in_force_like_the_ipv4_address_that_it_is(
    gateway: Gateway, sidecar: Sidecar, echo: Copies
) -> None:
    in_force = sidecar.declare("node-1", DeclaredRoutes(1, (spec("a", f"[::ffff:127.0.0.1]:{echo.ports[0]}"),)))
    assert [route.ready for route in in_force.routes] == [True]
    assert status(gateway) == 200


@pytest.mark.slow
def test_case_23_the_watcher_survives_whatever_happens(
    gateway: Gateway, sidecar: Sidecar, echo: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar.declare("node-1", DeclaredRoutes(1, (spec("a", f"127.0.0.1:{echo.ports[0]}"),)))
    failures = 0

    def fail(*_: object) -> None:
        nonlocal failures
        failures += 1
        raise RuntimeError("nobody expects this")

    with monkeypatch.context() as patched:
        patched.setattr(sidecar._haproxy.master, "workers", fail)
        until(lambda: failures >= 2, "the watcher tries again")
        assert not sidecar.condition().in_force
        assert "nobody expects this" in sidecar.condition().trouble
    until(lambda: sidecar.condition().in_force, "the watcher puts everything in force again")


def test_case_23_a_saved_route_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    good = {"copy": "good", "service": "shop/search", "address": "10.0.0.1:80"}
    bad = [
        {"copy": f"bad-{number}", "service": "shop/search", "address": address}
        for number, address in enumerate(("[2001:db8::1%;x]:80", "[2001:db8::1%x]:80", "169.254.169.254:80", "x"))
    ]
    path = tmp_path / "desired.json"
    declared = SavedRoutes(0, tuple(msgspec.Raw(json.dumps(route).encode()) for route in (*bad, good)))
    path.write_bytes(msgspec.json.encode(DesiredFile({"_node-1": declared}, {"shop/search": 1}, FIRST_SLOTS)))
    (server,) = state_file.read(path).servers()
    assert (server.copy, server.host, server.port) == ("good", "10.0.0.1", 80)


def test_the_report_of_a_gateway_names_what_it_leaves_out() -> None:
    from agents.gateway.plane import build_counts
    from agents.gateway.wire import SidecarCounts

    left_out = (LeftOutRoute("node-1", "bad", "HAProxy refuses it"),)
    assert build_counts(SidecarCounts("now", 0, 0, 0, ()), 1, 1, left_out).left_out == left_out
