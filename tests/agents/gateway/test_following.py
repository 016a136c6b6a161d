"""What the control plane says is routed where no node speaks for itself, and limits hold without a reload."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.contract.addresses import parse_address
from agents.contract.gateways import EndpointCopy, Endpoints, ServiceEndpoints
from agents.contract.paths import hash_rules
from agents.gateway import state_file
from agents.gateway.desired import Desired, declare, follow, give_slots
from agents.gateway.following import follow_endpoints
from agents.gateway.haproxy.configuration import LIMITS
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket
from agents.gateway.haproxy.parsing import parse_loads
from agents.gateway.plane import build_counts
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit
from tests.support.haproxy import Copies, Gateway, running_copies
from tests.support.patience import patience, until


def copy(name: str, node: str = "node-2", address: str = "10.0.0.2:9000", drained: bool = False) -> EndpointCopy:
    return EndpointCopy(name, node, address, 10.0, drained)


def told(*copies: EndpointCopy, service: str = "shop/search", **limit: float) -> Endpoints:
    return Endpoints(3, (ServiceEndpoints(service, copies, **limit),))  # type: ignore[arg-type]


def following(*copies: EndpointCopy, before: Desired | None = None) -> Desired:
    wanted = follow_endpoints(told(*copies), loopback=True)
    return give_slots(follow(before or Desired(), wanted.sources, wanted.limits), idle=())


def names(state: Desired) -> list[str]:
    return sorted(server.name for server in state.servers())


def test_copies_become_routes_of_their_nodes() -> None:
    state = following(copy("a"), copy("b", drained=True), copy("c", "node-3", "10.0.0.3:9000"))
    assert names(state) == ["_node-2:a", "_node-2:b", "_node-3:c"]
    assert [server.weight for server in state.servers()] == [256, 0, 256]


def test_a_node_that_speaks_here_itself_is_not_spoken_for() -> None:
    own = declare(Desired(), "node-2", DeclaredRoutes(1, (RouteSpec("a", "shop/search", "10.0.0.2:9000"),)))
    assert names(following(copy("a"), copy("b"), copy("c", "node-3"), before=own)) == ["node-2:a"]
    silent = declare(own, "node-2", DeclaredRoutes(2, ()))
    assert names(following(copy("a"), before=silent)) == ["_node-2:a"]


def test_no_address_is_routed_twice() -> None:
    own = declare(Desired(), "node-1", DeclaredRoutes(1, (RouteSpec("a", "shop/search", "10.0.0.2:9000"),)))
    state = following(copy("b", address="10.0.0.2:9000"), copy("c", address="10.0.0.2:9001"), before=own)
    assert names(state) == ["_node-2:c", "node-1:a"]


def test_what_cannot_be_reached_from_here_is_left_out_and_said() -> None:
    wrong = [copy(f"c{at}", address=address) for at, address in enumerate(("", "host:80", "0.0.0.0:80", "[::]:80"))]
    wanted = follow_endpoints(told(copy("good"), copy("mine", address="127.0.0.1:80"), *wrong), loopback=False)
    assert [route.copy for route in wanted.sources["_node-2"].routes] == ["good"]
    assert len(wanted.left_out) == 5
    assert "set --host of its agent" in " ".join(route.reason for route in wanted.left_out)
    assert {route.node for route in wanted.left_out} == {"node-2"}
    assert follow_endpoints(told(copy("mine", address="[::1]:80")), loopback=True).left_out == ()


@pytest.mark.parametrize("address", ["169.254.169.254:80", "[fe80::1]:80", "[::ffff:169.254.169.254]:80"])
def test_no_node_leads_requests_to_where_a_machine_is_told_its_credentials(address: str) -> None:
    assert follow_endpoints(told(copy("a", address=address)), loopback=True).sources == {}


def test_no_node_leads_requests_to_the_gateways_own_machine_by_another_spelling() -> None:
    assert follow_endpoints(told(copy("a", address="[::ffff:127.0.0.1]:80")), loopback=False).sources == {}


def test_case_23_no_node_leads_requests_to_the_control_plane_or_the_sidecar() -> None:
    own = {parse_address("10.0.0.2:8080")}
    wanted = follow_endpoints(
        told(copy("a", address="[::ffff:10.0.0.2]:8080"), copy("b", address="10.0.0.2:8081")), False, own
    )
    assert [route.address for route in wanted.sources["_node-2"].routes] == ["10.0.0.2:8081"]
    assert "is the control plane or this gateway" in wanted.left_out[0].reason


@pytest.mark.parametrize("address", ["[2001:db8::1%;x]:80", "[2001:db8::1%x]:80"])
def test_case_23_an_address_with_a_scope_id_is_left_out(address: str) -> None:
    wanted = follow_endpoints(told(copy("bad", address=address), copy("good")), loopback=False)
    assert [route.copy for route in wanted.sources["_node-2"].routes] == ["good"]


def test_a_node_is_followed_with_the_paths_of_its_own_copies() -> None:
    rules: dict[str, tuple[str, ...]] = {name: (f"GET /{name}",) for name in ("one", "two", "three")}
    table = {hash_rules(each): each for each in rules.values()}
    copies = [
        EndpointCopy(name, node, f"10.0.0.{at}:80", 10.0, paths=hash_rules(rules[name]), in_time=at)
        for at, (name, node) in enumerate((("one", "node-1"), ("two", "node-2")), 1)
    ]
    wanted = follow_endpoints(Endpoints(3, (ServiceEndpoints("a/b", tuple(copies)),), table), loopback=True)
    for name, source, in_time in (("one", "_node-1", 1), ("two", "_node-2", 2)):
        declared = wanted.sources[source]
        assert declared.paths == {hash_rules(rules[name]): rules[name]}
        assert [(each.copy, each.in_time) for each in declared.routes] == [(name, in_time)]


def test_what_is_followed_is_kept_on_disk(tmp_path: Path) -> None:
    wanted = follow_endpoints(told(copy("a"), shed_share=0.25, queue_limit=7, retry_after_seconds=9), loopback=False)
    state = give_slots(follow(Desired(), wanted.sources, wanted.limits), idle=())
    assert state.limits == {"shop/search": ServiceLimit(7, 0.25, 9)}
    state_file.keep(tmp_path / "desired.json", state)
    assert state_file.read(tmp_path / "desired.json") == state


# Through HAProxy


@dataclass
class Beside:
    gateway: Gateway
    sidecar: Sidecar

    def follow(self, *copies: EndpointCopy, **limit: float) -> None:
        wanted = follow_endpoints(told(*copies, **limit), loopback=True)  # type: ignore[arg-type]
        self.sidecar.follow(wanted)

    def get(self, path: str = "/shop/search/healthz") -> tuple[int, str]:
        """Status and Retry-After."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=patience())
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers.get("retry-after", "")

    def open_at(self, server: str) -> int:
        """Requests that it has."""
        found = parse_loads(self.gateway.ask("show stat -1 6 -1"))
        return sum(load.open for (_, name), load in found.items() if name == server)

    def process(self) -> int:
        """The one that takes connections; 0 while the master starts itself again."""
        try:
            return MasterSocket(self.gateway.master).workers()[0].pid
        except HaproxyAway:
            return 0


@pytest.fixture(scope="module")
def echo() -> Iterator[Copies]:
    with running_copies(2) as running:
        yield running


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """The sidecar in this process."""
    gateway = Gateway(tmp_path_factory.mktemp("following") / "gateway")
    try:
        gateway.start_haproxy()
        sidecar = Sidecar(gateway.state, gateway.master, gateway.requests)
        yield Beside(gateway, sidecar)
        sidecar.close()
    finally:
        gateway.close()


@pytest.fixture
def served(beside: Beside, echo: Copies) -> EndpointCopy:
    return copy("a", address=f"127.0.0.1:{echo.ports[0]}")


@pytest.mark.slow
def test_a_share_of_requests_is_shed_and_asked_to_come_again(beside: Beside, served: EndpointCopy) -> None:
    process = beside.process()
    beside.follow(served)
    assert {beside.get() for _ in range(20)} == {(200, "")}
    beside.follow(served, shed_share=1.0, retry_after_seconds=7)
    assert {beside.get() for _ in range(20)} == {(503, "7")}
    beside.follow(served, shed_share=0.5, retry_after_seconds=3)
    answers = Counter(beside.get() for _ in range(200))
    assert answers.keys() == {(200, ""), (503, "3")}
    assert 50 < answers[503, "3"] < 150
    beside.follow(served)
    assert {beside.get() for _ in range(20)} == {(200, "")}
    assert beside.process() == process  # nothing was reloaded


def test_more_than_may_wait_is_turned_away(beside: Beside, served: EndpointCopy) -> None:
    beside.follow(served, queue_limit=2, retry_after_seconds=5)
    answers: list[tuple[int, str]] = []
    slow = [
        threading.Thread(target=lambda: answers.append(beside.get("/shop/search/healthz?ms=1500"))) for _ in range(2)
    ]
    for thread in slow:
        thread.start()
    until(lambda: beside.open_at("_node-2:a") == 2, "two are open")
    assert beside.get() == (503, "5")
    for thread in slow:
        thread.join()
    assert answers == [(200, "")] * 2
    assert beside.get() == (200, "")


@pytest.mark.slow
def test_in_an_overload_no_more_are_let_in_than_are_answered_in_time(beside: Beside, served: EndpointCopy) -> None:
    beside.follow(served, queue_limit=1000, slo_ms=50.0)
    slow = [threading.Thread(target=beside.get, args=("/shop/search/healthz?ms=3500",)) for _ in range(30)]
    for thread in slow:
        thread.start()

    def waiting() -> int:
        services = build_counts(beside.sidecar.counts(), 1, 1).services
        return sum(one.open for one in services if one.service == "shop/search")

    until(lambda: waiting() == 30, "those who wait are counted")
    until(lambda: beside.get("/shop/search/healthz?ms=0") == (503, "2"), "more than are answered in time are open")
    for thread in slow:
        thread.join()
    assert beside.get() == (200, ""), "who finds room is let in"
    until(lambda: not beside.sidecar.relief.most_open, "it is over")


def test_what_was_shed_is_counted_as_asked_for(beside: Beside) -> None:
    wanted = follow_endpoints(told(service="shop/counted", shed_share=1.0), loopback=True)
    beside.sidecar.follow(wanted)
    for _ in range(5):
        assert beside.get("/shop/counted/healthz")[0] == 503

    def counted() -> list[tuple[int, int, int]]:
        services = build_counts(beside.sidecar.counts(), 1, 1).services
        return [(one.requests, one.errors, one.shed) for one in services if one.service == "shop/counted"]

    until(lambda: counted() == [(5, 5, 5)], f"{counted()}")


def test_requests_of_a_declared_service_that_never_had_a_copy_are_errors_of_that_service(beside: Beside) -> None:
    wanted = follow_endpoints(told(service="shop/planned"), loopback=True)
    beside.sidecar.follow(wanted)
    for _ in range(5):
        assert beside.get("/shop/planned/x") == (503, "2")

    def counted() -> list[tuple[int, int]]:
        services = build_counts(beside.sidecar.counts(), 1, 1).services
        return [(one.requests, one.errors) for one in services if one.service == "shop/planned"]

    until(lambda: counted() == [(5, 5)], f"{counted()}")


@pytest.mark.slow
def test_limits_outlive_a_reload_and_a_hand_that_undoes_them(beside: Beside, served: EndpointCopy) -> None:
    beside.follow(served, shed_share=1.0)
    process = beside.process()
    beside.gateway.reload()
    until(lambda: beside.process() not in (0, process), "another process takes connections")
    assert beside.get()[0] == 503
    beside.gateway.ask(f"clear map {beside.gateway.state / LIMITS}")
    until(lambda: beside.get()[0] == 503, "it is put right")


def test_a_service_without_copies_asks_its_callers_to_come_again(beside: Beside) -> None:
    wanted = follow_endpoints(told(service="shop/unserved", shed_share=1.0, retry_after_seconds=30), loopback=True)
    beside.sidecar.follow(wanted)
    assert beside.get("/shop/unserved/healthz") == (503, "30")
