"""What the gateway takes from the control plane and what it sends, against a small one that says what a test wants."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from agents.contract.addresses import CopyAddress, parse_address
from agents.contract.gateways import (
    EndpointCopy,
    Endpoints,
    LengthTotals,
    ServiceEndpoints,
    TokenTotals,
    WindowTotals,
)
from agents.gateway import plane as rooms
from agents.gateway.desired import Desired
from agents.gateway.following import Followed
from agents.gateway.haproxy.haproxy import Haproxy
from agents.gateway.haproxy.master_socket import MasterSocket
from agents.gateway.plane import ControlPlaneAddress, PlaneClient, build_counts
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import CountedRequests, DeclaredRoutes, RouteSpec, SidecarCounts
from tests.support.patience import until
from tests.support.runtime_haproxy import runtime_haproxy
from tests.support.small_plane import TOKEN, SmallPlane

SERVICE = "shop/search"


class Site:
    """A sidecar that follows a small control plane."""

    def __init__(self, plane: SmallPlane, sidecar: Sidecar, token_file: Path) -> None:
        self.plane = plane
        self.sidecar = sidecar
        self.token_file = token_file
        self.client: PlaneClient | None = None

    def start(self, listen: str = "/", loopback: bool = True) -> PlaneClient:
        url = f"http://127.0.0.1:{self.plane.server_address[1]}"
        self.client = PlaneClient(
            self.sidecar, ControlPlaneAddress(url, self.token_file, "edge-1", loopback=loopback, listen=listen)
        )
        return self.client

    def close(self) -> None:
        if self.client:
            self.client.close()
            for thread in self.client._threads:
                thread.join(20)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(rooms, "PUSH_SECONDS", 0.05)
    monkeypatch.setattr(rooms, "LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("agents.gateway.sidecar.WATCH_SECONDS", 0.05)
    (tmp_path / "token").write_text(f"# of edge-1\n{TOKEN}\n")
    with runtime_haproxy(tmp_path) as remote, SmallPlane() as plane:
        Haproxy(MasterSocket(remote.path), remote.state, "127.0.0.1:1").write(Desired())
        remote.start_process()
        threading.Thread(target=plane.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        with closing(Sidecar(remote.state, remote.path, "127.0.0.1:0")) as sidecar:
            found = Site(plane, sidecar, tmp_path / "token")
            try:
                yield found
            finally:
                found.close()
                plane.shutdown()


def told(version: int, *addresses: str) -> Endpoints:
    copies = tuple(EndpointCopy(f"c{at}", "node-1", address) for at, address in enumerate(addresses))
    return Endpoints(version, (ServiceEndpoints(SERVICE, copies, 64),))


def routed(site: Site) -> list[str]:
    return [each.address for declared in site.sidecar.sources().values() for each in declared.routes]


def test_endpoints_become_routes_and_their_version_is_told_once_they_are_in_force(site: Site) -> None:
    site.plane.endpoints = told(7, "10.0.0.1:80")
    client = site.start()
    until(lambda: routed(site) == ["10.0.0.1:80"], "the copy is routed")
    until(lambda: site.plane.newest.endpoints == 7, "the control plane hears of it")
    assert site.plane.asked.count("/api/v1/endpoints?after=0&waitSeconds=30") == 1
    newer = "/api/v1/endpoints?after=7&waitSeconds=30"
    until(lambda: site.plane.asked.count(newer) > 2, "it asks for what is newer, again where there is nothing")
    until(lambda: len(site.plane.counts) > 3, "counts are sent again and again")
    assert "/api/v1/gateways/edge-1/counts" in site.plane.asked
    sequences = [counts.sequence for counts in site.plane.counts]
    assert sequences == sorted(set(sequences))
    assert (client.following, client.pushing) == ("", "")


def test_a_control_plane_that_has_lost_every_copy_takes_none_away(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.plane.endpoints = Endpoints(1)
    site.start()
    until(lambda: any("after=1&" in each for each in site.plane.asked), "it knows of none yet")
    assert routed(site) == []
    site.plane.endpoints = told(2, "10.0.0.1:80", "169.254.169.254:80")
    until(lambda: routed(site) == ["10.0.0.1:80"], "one can be reached")
    assert "copy c1 of node node-1 is not routed" in caplog.text
    until(lambda: site.plane.newest.left_out != (), "it is told")
    site.plane.endpoints = told(3)
    until(lambda: any("after=3&" in each for each in site.plane.asked), "it has heard of it")
    assert routed(site) == ["10.0.0.1:80"]
    assert "its earlier endpoints stay in force" in caplog.text
    site.plane.endpoints = told(4, "10.0.0.2:80")
    until(lambda: routed(site) == ["10.0.0.2:80"], "others take their place")


@pytest.mark.slow
def test_what_goes_wrong_is_told_and_logged_once_and_tried_again(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.token_file.write_text("")
    client = site.start()
    until(lambda: "has no token" in client.following and "has no token" in client.pushing, "there is no token yet")
    site.token_file.write_text(TOKEN)
    site.plane.endpoints = b"nonsense"
    site.plane.status = 503
    until(lambda: "cannot be parsed" in client.following and "503" in client.pushing, "the answers are of no use")
    asked = len(site.plane.asked)
    until(lambda: len(site.plane.asked) > asked + 6, "it asks again")
    site.plane.endpoints, site.plane.status = told(1, "10.0.0.1:80"), 200
    until(lambda: client.following == client.pushing == "", "all is well")
    assert routed(site) == ["10.0.0.1:80"]
    for text in ("following: the answer cannot be parsed", "pushing: PUT", "following the control plane again"):
        assert caplog.text.count(text) == 1, text
    assert "could not be processed" not in caplog.text
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Sidecar, "counts", lambda _: 1 / 0)
        until(lambda: "division" in client.pushing, "nobody expects this")
    until(lambda: client.pushing == "", "the thread goes on")
    assert "pushing: an answer could not be processed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.slow
def test_a_gateway_with_the_name_of_another_says_so_and_goes_on_above_it(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.plane.taken = 1000  # of before this process
    site.start()
    until(lambda: len(site.plane.counts) > 3, "it goes on")
    assert [counts.sequence for counts in site.plane.counts[:3]] == [0, 1001, 1002]
    assert "another process reports" not in caplog.text
    site.plane.taken = 5000
    until(lambda: site.plane.newest.sequence > 5001, "another one was faster")
    assert caplog.text.count("another process reports as gateway edge-1") == 1


def test_once_closed_it_takes_nothing_more_and_hangs_up(site: Site) -> None:
    site.plane.endpoints = told(1, "10.0.0.1:80")
    client = site.start()
    until(lambda: routed(site) == ["10.0.0.1:80"], "it follows")
    client.close()
    site.plane.endpoints = told(2, "10.0.0.2:80")
    for thread in client._threads:
        thread.join(20)
    assert routed(site) == ["10.0.0.1:80"]
    until(lambda: site.plane.open == 0, "no connection is left")


def test_a_message_that_would_be_too_large_goes_without_latencies(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plane.endpoints = told(1, "10.0.0.1:80")
    site.start()
    until(lambda: routed(site) == ["10.0.0.1:80"], "the service is known")
    site.sidecar.tallies.add(b"gw1 1 shop/search _node-1:c0 200 -- 12 0")

    def sent() -> list[bool]:
        return [bool(service.latency_counts) for service in site.plane.newest.services]

    until(lambda: sent() == [True], "it is counted")
    monkeypatch.setattr(rooms, "MOST_BYTES", 10)
    until(lambda: sent() == [False], "without latencies")
    assert site.plane.newest.services[0].requests == 1


def test_no_copy_is_where_the_control_plane_or_the_gateway_listens(site: Site, tmp_path: Path) -> None:
    def own(url: str, listen: str = "/run/x.sock") -> frozenset[CopyAddress]:
        client = PlaneClient(site.sidecar, ControlPlaneAddress(url, tmp_path / "none", "edge-1", listen=listen))
        client.close()
        return client._own_addresses()

    assert own("http://127.0.0.1") == {parse_address("127.0.0.1:80")}
    assert own("https://127.0.0.1") == {parse_address("127.0.0.1:443")}
    assert own("https://127.0.0.1:8080") == {parse_address("127.0.0.1:8080")}
    here = set[CopyAddress]()
    with suppress(OSError):
        found = socket.getaddrinfo(socket.gethostname(), 9444, type=socket.SOCK_STREAM)
        here = {parse_address(f"{each[4][0]}:9444") for each in found if each[0] == socket.AF_INET}
    assert own("http://127.0.0.1", "127.0.0.2:9444") >= {parse_address("127.0.0.2:9444"), *here}
    assert parse_address("[::1]:9444") in own("http://127.0.0.1", "[::1]:9444")


def test_totals_are_sent_for_services_that_were_ever_asked_for() -> None:
    full = CountedRequests(
        SERVICE, 9, 8, (1, 0, 2, 0, 0), shed=7, open=6, timed=5, late=4, windows=(WindowTotals(1, 2, 3.0, 4.0, 5.0),),
        tokens=TokenTotals(1, 2, 3, 4), lengths=LengthTotals(1, 2, 3),
    )  # fmt: skip
    waiting, never = CountedRequests("a/waits", 0, 0, (), open=1), CountedRequests("a/never", 0, 0, (0, 0))
    of_copy = CountedRequests(SERVICE, 9, 8, (), "node-1", "c0")
    built = build_counts(SidecarCounts("now", 100, 3, 1, (full, waiting, never, of_copy)), 11, 12)
    assert (built.began, built.sequence, built.lost_lines, built.endpoints) == ("now", 11, 3, 12)
    assert [each.service for each in built.services] == [SERVICE, "a/waits"]
    sent, counted = (msgspec.structs.asdict(each) for each in (built.services[0], full))
    assert sent == {name: value for name, value in counted.items() if name in sent} | {"latency_counts": (1, 0, 2)}


def test_own_routes_of_a_node_are_none_to_lose(site: Site) -> None:
    route = RouteSpec("a", SERVICE, "10.0.0.1:80")
    site.sidecar.declare("node-1", DeclaredRoutes(1, (route,)))
    assert not site.sidecar.is_routing()
    site.sidecar.follow(Followed({"_node-1": DeclaredRoutes(0)}, {}, ()))
    assert not site.sidecar.is_routing()
    site.sidecar.follow(Followed({"_node-1": DeclaredRoutes(0, (route,))}, {}, ()))
    assert site.sidecar.is_routing()
