"""What callers may use of a service: what its copies admit reaches them, and no spelling of anything else does."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import pytest

from agents.contract.paths import build_table, hash_rules
from agents.contract.spellings import RULE
from agents.gateway.desired import MOST_OPEN, Desired, declare, follow, give_slots
from agents.gateway.haproxy.admitting import (
    NOTHING,
    list_expressions,
    list_keys,
    list_new_keys,
    narrow_keys,
    read_shipped_rules,
    render_expressions,
)
from agents.gateway.haproxy.parsing import ServerLoad, parse_loads
from agents.gateway.haproxy.queue_guard import QueueGuard
from agents.gateway.wire import DeclaredRoutes, RouteSpec
from agents.seams.routes import Route
from agents.templates.reading import read
from tests.agents.gateway.http2 import MOST_BYTES, ask_http2
from tests.agents.gateway.routers import ROUTERS, Router
from tests.agents.gateway.spellings import spell_requests
from tests.support.haproxy import ANY_PATH, Gateway, running_gateway
from tests.support.patience import patience, until
from tests.support.recorder import Recorder, recording
from tests.support.soak import scaled

GRPC = (
    "POST /inference.GRPCInferenceService/{method}",
    "POST /grpc.health.v1.Health/Check",
    "POST /shop.v1.Search/**",
    "* /files/**",
)


AT_ONCE = 16  # connections, fewer than a copy lets wait


@dataclass(frozen=True)
class Admitted:
    """A gateway with one service for each server, and what arrives at its only copy."""

    gateway: Gateway
    copies: dict[str, Recorder]

    def send(self, request: bytes) -> bytes:
        """Returns the beginning of the answer, if there is one."""
        with socket.create_connection(("127.0.0.1", self.gateway.port), timeout=patience()) as connection:
            connection.sendall(request)
            with suppress(ConnectionError):
                return connection.recv(64)
        return b""

    def send_many(self, requests: Sequence[bytes]) -> None:
        """Sends each on a connection of its own, some of them at once, and waits for the answers."""
        for begin in range(0, len(requests), AT_ONCE):
            several = requests[begin : begin + AT_ONCE]
            with ExitStack() as stack:
                connections = [
                    stack.enter_context(socket.create_connection(("127.0.0.1", self.gateway.port), timeout=patience()))
                    for _ in several
                ]
                for connection, request in zip(connections, several, strict=True):
                    connection.sendall(request)
                for connection in connections:
                    with suppress(ConnectionError):
                        connection.recv(64)

    def ask(self, method: str, path: str) -> int:
        answer = self.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int(answer.split(b" ")[1])


@pytest.fixture(scope="module")
def admitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admitted]:
    with ExitStack() as stack:
        gateway = stack.enter_context(running_gateway(tmp_path_factory.mktemp("admitted") / "gateway"))
        rules = {name: template.form.paths for name, template in read().items() if template.form.paths} | {
            "grpc": GRPC,
            "open": ANY_PATH,
        }
        copies = {name: stack.enter_context(recording()) for name in (*rules, "unknown", "open")}
        gateway.routes().declare(
            [
                Route(name, f"shop/{name}", f"127.0.0.1:{copy.port}", 1.0, paths=rules.get(name))
                for name, copy in copies.items()
            ]
        )
        yield Admitted(gateway, copies)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: router.template)
def test_no_spelling_of_a_control_path_arrives(admitted: Admitted, router: Router) -> None:
    most = scaled(10_000, 20, 3)
    for name, count in ((router.template, most), ("unknown", scaled(1_000, 20, 3)), ("open", min(most, 100))):
        copy = admitted.copies[name]
        copy.heads.clear()
        for control in router.controls:
            assert router.controls_by(f"POST {control} HTTP/1.1\r\n".encode())
            spelled = list(enumerate(spell_requests(f"shop/{name}", control, count, 49)))
            by_http2 = {at for at, (_, path, _) in spelled if at % 10 == 9 and len(path) < MOST_BYTES}
            admitted.send_many([request for at, (_, _, request) in spelled if at not in by_http2])
            for at in by_http2:
                ask_http2(admitted.gateway.port, *spelled[at][1][:2])
        arrived = [head for head in copy.heads if router.controls_by(head)]
        assert bool(arrived) == (name == "open"), arrived[:3]  # without rules some spellings do arrive


ORDINARY = {
    "gpuwright-serve": ["POST /v1/models/m:infer", "GET /healthz", "HEAD /healthz", "GET /v1/example?x=1"],
    "gpuwright-llm": ["POST /v1/completions", "POST /v1/chat/completions", "GET /v1/models", "GET /health"],
    "triton": [
        "GET /v2", "GET /v2/health/live", "GET /v2/health/ready", "GET /v2/models/{m}", "GET /v2/models/{m}/ready",
        "POST /v2/models/{m}/infer", "POST /v2/models/{m}/generate", "POST /v2/models/{m}/generate_stream",
        "GET /v2/models/{m}/versions/{v}", "GET /v2/models/{m}/versions/{v}/ready",
        "POST /v2/models/{m}/versions/{v}/infer", "POST /v2/models/{m}/versions/{v}/generate",
    ],
    "vllm": [
        "GET /health", "GET /version", "GET /v1/models", "POST /v1/completions?beta=true", "POST /v1/chat/completions",
        "POST /v1/embeddings", "POST /v1/responses", "GET /v1/responses/resp_{m}", "POST /v1/responses/resp_{m}/cancel",
        "POST /v1/messages", "POST /tokenize", "POST /detokenize", "POST /v1/rerank", "POST /v1/score",
        "POST /v1/audio/transcriptions", "POST /invocations",
    ],
    "sglang": [
        "GET /health", "GET /health_generate", "GET /model_info", "POST /generate", "POST /v1/completions",
        "POST /v1/chat/completions", "GET /v1/models/org/{m}", "GET /v1/models/{m}", "POST /v1/embeddings",
        "POST /v1/rerank", "POST /classify",
    ],
    "grpc": [
        "POST /inference.GRPCInferenceService/ModelInfer", "POST /inference.GRPCInferenceService/ServerReady",
        "POST /grpc.health.v1.Health/Check", "POST /shop.v1.Search/Find", "GET /files/", "PUT /files/a/{m}/c.txt",
    ],
}  # fmt: skip
NAMES = ("m", "resnet50-v1.5", "a%20b", "caf%C3%A9", "x%3Ay", "a+b", "~me", "v1%40prod", "UPPER_case", "m:q4")


@pytest.mark.slow
def test_ordinary_paths_arrive_as_they_are(admitted: Admitted) -> None:
    sent = 0
    for name, requests in ORDINARY.items():
        copy = admitted.copies[name]
        copy.heads.clear()
        wanted = []
        for request in requests:
            method, path = request.split(" ")
            for spelled in {path.replace("{m}", model).replace("{v}", "12") for model in NAMES}:
                assert admitted.ask(method, f"/shop/{name}{spelled}") == 200, (name, method, spelled)
                wanted.append(f"{method} {spelled}")
            if "{m}" not in path and method == "POST":
                assert ask_http2(admitted.gateway.port, method, f"/shop/{name}{path}")
                wanted.append(f"{method} {path}")
        sent += len(wanted)
        arrived = [b" ".join(head.partition(b"\r\n")[0].split(b" ")[:2]).decode() for head in copy.heads]
        assert sorted(arrived) == sorted(wanted)
    assert sent >= 200


@pytest.mark.slow
def test_a_method_or_a_path_that_no_rule_names_is_answered_404(admitted: Admitted) -> None:
    for name, method, path in [
        ("triton", "POST", "/v2/models/m"),
        ("triton", "GET", "/v2/models/m/infer"),
        ("triton", "GET", "/v2/"),
        ("vllm", "POST", "/V1/completions"),
        ("vllm", "POST", "/v1/%63ompletions"),
        ("vllm", "post", "/v1/completions"),
        ("vllm", "GET", "/"),
        ("grpc", "POST", "/inference.GRPCInferenceService/a/b"),
        ("grpc", "GET", "/files"),
        ("unknown", "GET", "/anything"),
    ]:
        assert admitted.ask(method, f"/shop/{name}{path}") == 404, (name, method, path)
    assert admitted.ask("POST", "/shop/unknown/v1/completions") == 200, "an older agent's copies answer what ours do"
    assert admitted.send(b"POST /shop/vllm/v1/completions HTTP/1.0\r\n\r\n").split(b" ")[1] == b"200"


@pytest.mark.slow
def test_an_own_server_without_paths_keeps_those_of_its_agent(gateway: Gateway) -> None:
    rules = ("* /**", "!* /drain", "!* /health.z", "!* /metrics")
    with recording() as copy:
        gateway.routes().declare([Route("a", "shop/own", f"127.0.0.1:{copy.port}", 1.0, paths=rules)])
        own = Admitted(gateway, {})
        for path in ("/", "/drained", "/count", "/a/drain", "/x%20y", "/healthyz", "/v1/metrics", "/METRIC"):
            assert own.ask("GET", f"/shop/own{path}") == 200, path
        for path in ("/drain", "/DRAIN", "/drain/", "/%64rain", "/drain?x", "/metrics/x", "/Health.Z", "/health%2ez"):
            assert own.ask("POST", f"/shop/own{path}") == 404, path


@pytest.mark.slow
def test_a_scheme_that_servers_read_in_their_own_ways_is_refused_and_a_long_path_is_not(gateway: Gateway) -> None:
    with recording() as copy:
        gateway.routes().declare([Route("a", "shop/own", f"127.0.0.1:{copy.port}", 1.0, paths=("* /**", "!* /drain"))])
        own = Admitted(gateway, {})
        for scheme, authority in (("foo", "a?b"), ("ftp", "a\\drain?"), ("file", "x")):
            ask_http2(gateway.port, "GET", "/shop/own/x", scheme, authority)
        assert copy.heads == []
        for path in ("/" + "a" * 3900, "/a" * 1900, "/" + "%C3%A9" * 600):
            assert own.ask("GET", f"/shop/own{path}") == 200, len(path)
        assert own.ask("GET", "/shop/own/" + "a" * 4000) == 400


def test_rules_that_haproxy_could_not_read_admit_nothing() -> None:
    long = tuple(f"!* /{number}{'x' * 580}" for number in range(63))
    assert render_expressions(("* /**", *long)) == ()


def test_many_long_rules_are_several_entries_which_admit_what_any_of_them_does() -> None:
    rules = tuple(f"GET /{number}{'x' * 280}" for number in range(64))
    entries = render_expressions(rules)
    assert len(entries) == 5
    assert max(map(len, entries)) < 4200
    for rule in rules:
        asked = f"{hash_rules(rules)}:{rule.replace(' ', ':')}"
        assert len([entry for entry in entries if re.fullmatch(entry, asked)]) == 1, rule
        assert not [entry for entry in entries if re.fullmatch(entry, f"{asked}x")]


@pytest.mark.parametrize("path", ["/{a}{b}", "/x{a}y{b}", "/{a}.{b}/c"])
def test_a_segment_has_one_hole_because_several_take_long_to_compare(path: str) -> None:
    assert re.fullmatch(RULE, f"GET {path}") is None


@pytest.mark.slow
def test_while_two_kinds_of_server_serve_only_what_both_admit_arrives(gateway: Gateway) -> None:
    """A hand-over from one server to another: no request fails that both admit, and none reaches the wrong one."""
    with recording() as old, recording() as new:
        first = Route("old", "shop/x", f"127.0.0.1:{old.port}", 1.0, paths=("GET /both", "POST /load"))
        second = Route("new", "shop/x", f"127.0.0.1:{new.port}", 1.0, paths=("GET /both", "GET /files/{name}"))
        seen = Admitted(gateway, {})

        def answers() -> dict[str, int]:
            asked = [("GET", "/both"), ("POST", "/load"), ("GET", "/files/a")]
            return {path: seen.ask(method, f"/shop/x{path}") for method, path in asked}

        routes = gateway.routes()
        assert answers() == {"/both": 404, "/load": 404, "/files/a": 404}
        routes.declare([first])
        assert answers() == {"/both": 200, "/load": 200, "/files/a": 404}
        routes.declare([first, second])
        assert answers() == {"/both": 200, "/load": 404, "/files/a": 404}
        routes.declare([Route(first.copy, first.service, first.address, 1.0, True, first.paths), second])
        assert answers() == {"/both": 200, "/load": 404, "/files/a": 200}
        routes.declare([])
        assert answers() == {"/both": 503, "/load": 503, "/files/a": 503}


@pytest.mark.slow
@pytest.mark.parametrize("between", ["nothing", "no copy", "a restart of the sidecar"])
def test_what_waits_reaches_no_copy_that_came_later_and_does_not_admit_it(gateway: Gateway, between: str) -> None:
    with recording() as old, recording() as new, ExitStack() as callers:
        first = Route("old", "shop/x", f"127.0.0.1:{old.port}", 1.0, paths=("GET /both", "POST /load"))
        second = Route("new", "shop/x", f"127.0.0.1:{new.port}", 1.0, paths=("GET /both",))
        routes = gateway.routes()
        routes.declare([first])
        old.may_answer.clear()

        def send(asked: str, count: int, waiting: int) -> None:
            for _ in range(count):
                connection = callers.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
                connection.sendall(f"{asked} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            until(lambda: count_requests(gateway) == (MOST_OPEN, waiting), f"{waiting} requests wait")

        def is_ready(*declared: Route) -> bool:
            state = routes.declare(declared).of("new")
            assert state
            return state.ready

        send("GET /shop/x/both", MOST_OPEN, 0)
        send("POST /shop/x/load", 20, 20)
        if between == "no copy":
            routes.declare([])
            assert not is_ready(second)
        assert not is_ready(first, second)
        if between == "a restart of the sidecar":
            gateway.kill_sidecar()
            gateway.start_sidecar()
            gateway.await_sidecar()
            assert not is_ready(first, second)
        assert count_requests(gateway) == (MOST_OPEN, 20)
        old.may_answer.set()
        until(lambda: is_ready(first, second), "the new copy gets requests once nothing waits")
        if between != "no copy":  # in which case HAProxy may keep what waits until it answers 503
            assert sum(head.startswith(b"POST /load") for head in old.heads) == 20
        assert not [head for head in new.heads if b"/load" in head]


def count_requests(gateway: Gateway) -> tuple[int, int]:
    """Returns how many requests copies have, and how many wait for one."""
    loads = parse_loads(gateway.ask("show stat -1 6 -1"))
    backend = {name: load for (slot, name), load in loads.items() if slot == "gw-0001"}
    copies = [load for name, load in backend.items() if name != "BACKEND"]
    return sum(load.open for load in copies), sum(load.queued for load in backend.values())


def test_what_waits_delays_a_copy_of_another_kind_no_longer_than_it_can_wait() -> None:
    def load(queued: int) -> dict[tuple[str, str], ServerLoad]:
        return {("gw-0001", "BACKEND"): ServerLoad(9, queued), ("gw-0002", "BACKEND"): ServerLoad(9, 9)}

    desired = declare(give_slots(Desired(), ()), "n", DeclaredRoutes(1, (spec("a", ("GET /a",)),), {}))
    wanted = {"gw-0001": {each.name: each for each in desired.servers()}}
    for queued, now, is_held in ((1, 100.0, True), (1, 110.9, True), (1, 111.1, False), (0, 100.1, False)):
        guard = QueueGuard()
        guard.note({"gw-0001": ["k"]}, 100.0)
        guard.settle(load(queued), now)
        (server,) = guard.hold(wanted, {}, {"n:a": "k"})["gw-0001"].values()
        assert (guard.has_any(), server.drained, server.weight == 0) == (is_held, is_held, is_held)
        assert guard.hold(wanted, {}, {"n:a": "l"}) == wanted, "a copy of a kind that was there gets what waits"
        assert (guard.knows, QueueGuard().knows) == (True, False)


def test_a_node_that_changes_what_its_copies_admit_again_and_again_delays_no_copy_of_another_node() -> None:
    guard = QueueGuard()
    full = {("gw-0001", "BACKEND"): ServerLoad(9, 1)}
    desired = declare(give_slots(Desired(), ()), "n", DeclaredRoutes(1, (spec("a", ("GET /a",)),), {}))
    wanted = {"gw-0001": {each.name: each for each in desired.servers()}}
    held = []
    for seconds in range(0, 60, 5):
        guard.note({"gw-0001": [f"evil {seconds}"] if seconds else ["evil", "good"]}, seconds)
        guard.settle(full, seconds)
        (server,) = guard.hold(wanted, {}, {"n:a": "good"})["gw-0001"].values()
        held.append(server.drained)
        (of_evil,) = guard.hold(wanted, {}, {"n:a": f"evil {seconds}" if seconds else "evil"})["gw-0001"].values()
        assert of_evil.drained
    assert held == [True] * 3 + [False] * 9, "no longer than a request can wait"


def spec(copy: str, rules: tuple[str, ...], drained: bool = False, weight: float = 1.0) -> RouteSpec:
    return RouteSpec(copy, "shop/x", "127.0.0.1:9000", weight, drained, paths=hash_rules(rules))


def test_copies_of_more_kinds_than_haproxy_asks_for_are_left_out_and_named() -> None:
    kinds = [(f"GET /{at}",) for at in range(6)]
    for count in range(1, 7):
        routes = tuple(spec(str(at), rules, weight=10 - at) for at, rules in enumerate(kinds[:count]))
        desired = declare(Desired(), "node-1", DeclaredRoutes(1, routes, build_table(kinds)))
        keys = list_keys(desired)["shop/x"].split(".")
        assert len(keys) == 8
        assert set(keys) == {hash_rules(rules) for rules in kinds[: min(count, 4)]}, (
            "those of least weight are left out"
        )
        assert [route.copy for _, route in desired.routes()] == [str(at) for at in range(min(count, 4))]
        assert [(each.node, each.copy) for each in desired.left_out()] == [
            ("node-1", str(at)) for at in range(4, count)
        ]
        assert all("shop/x has copies of more than 4 kinds" in each.reason for each in desired.left_out())
    drained = tuple(spec(str(at), rules, drained=at == 0) for at, rules in enumerate(kinds[:5]))
    ending = declare(Desired(), "node-1", DeclaredRoutes(1, drained, build_table(kinds)))
    assert (len(ending.routes()), ending.left_out()) == (5, ()), "a drained copy is no kind more"


@pytest.mark.parametrize("first", ["evil", "good"])
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_node_crowds_no_copy_of_another_node_out_however_many_kinds_it_reports(first: str, is_followed: bool) -> None:
    many = [("* /**", f"GET /{at}") for at in range(4)]
    old, new = ("POST /v1/completions",), ("POST /v1/completions", "POST /v2/completions")
    evil = tuple(spec(f"e{at}", rules, weight=1000.0) for at, rules in enumerate(many))
    for good in ((spec("a", old),), (spec("a", new), spec("b", old)), (spec("a", old), spec("b", new, weight=0.1))):
        sources = {
            "evil": DeclaredRoutes(1, evil, build_table(many)),
            "good": DeclaredRoutes(1, good, build_table([old, new])),
        }
        desired = Desired()
        for source in (first, *(sources.keys() - {first})):
            desired = declare(desired, source, sources[source])
        if is_followed:
            desired = follow(Desired(), {f"_{source}": declared for source, declared in sources.items()}, {})
        in_force = {route.copy for _, route in desired.routes()}
        assert {route.copy for route in good} <= in_force, "also while it replaces its copies"
        assert [(each.node, each.copy) for each in desired.left_out()] == [
            ("evil", route.copy) for route in evil if route.copy not in in_force
        ]


def test_a_new_kind_of_copies_takes_the_place_of_no_older_one_nor_of_one_that_more_nodes_have() -> None:
    kinds = [(f"* /{sign}",) for sign in "zyxwv"]
    desired = Desired()
    for at, rules in enumerate(kinds[:4]):
        declared = DeclaredRoutes(1, (spec("1", rules),), build_table(kinds))
        desired = declare(desired, f"node-{9 - at}", declared)
    newer = DeclaredRoutes(1, (spec("1", kinds[4], weight=1000.0),), build_table(kinds))
    desired = declare(desired, "node-1", newer)
    assert [each.node for each in desired.left_out()] == ["node-1"]
    desired = declare(desired, "node-2", newer)
    assert [each.node for each in desired.left_out()] == ["node-6"], "two nodes have it, and the newest other one goes"


def test_only_copies_that_get_new_requests_decide_what_a_service_admits() -> None:
    old, new = ("GET /old",), ("GET /new",)
    table = build_table([old, new])
    both = declare(Desired(), "n", DeclaredRoutes(1, (spec("a", old, drained=True), spec("b", new)), table))
    assert set(list_keys(both)["shop/x"].split(".")) == {hash_rules(new)}
    last = declare(Desired(), "n", DeclaredRoutes(1, (spec("a", old, drained=True),), table))
    assert set(list_keys(last)["shop/x"].split(".")) == {hash_rules(old)}
    lost = declare(Desired(), "n", DeclaredRoutes(1, (spec("a", old),), build_table([new])))
    assert list_expressions(lost) == {}, "rules that a message lacks admit nothing"


def test_what_is_admitted_while_copies_change_was_admitted_before_and_is_admitted_after() -> None:
    def narrow(before: dict[str, str], after: dict[str, str]) -> dict[str, set[str]]:
        return {service: {*keys.split(".")} for service, keys in narrow_keys(before, after).items()}

    assert narrow({"s": "a.a.a"}, {"s": "b.b.b"}) == {"s": {"a", "b"}}
    assert narrow({"s": "a", "gone": "c"}, {"new": "d"}) == {"s": {"a"}, "gone": {"c"}, "new": {"d"}}
    assert narrow({"s": "a.b"}, {"s": "c.d"}) == {"s": {"a", "b", "c", "d"}}
    assert narrow({"s": "a.b.c.d"}, {"s": "e.f.g.h"}) == {"s": set("abcdefgh")}
    assert narrow({"s": "a.b.c.d.e.f.g.h"}, {"s": "i"}) == {"s": {NOTHING}}
    assert narrow({"s": NOTHING}, {"s": "d"}) == {"s": {"d", NOTHING}}
    assert list_new_keys({"s": "a.a", "gone": "c"}, {"s": "a.b", "new": "d"}) == {"s": {"b"}, "new": {"d"}}
    assert list_new_keys({"s": "a.b"}, {"s": "b.b"}) == {}


def test_no_shipped_rule_names_a_control_path_of_any_server() -> None:
    """The copies of an agent that names no paths are of any server, and get what any template admits."""
    for rule in read_shipped_rules():
        path = rule.split(" ")[1].replace("{", "").replace("}", "").replace("**", "x/y")
        assert not [router.template for router in ROUTERS if router.controls_by(f"GET {path} HTTP/1.1".encode())], rule


@pytest.mark.slow
def test_many_services_with_paths_of_their_own_are_told_apart(gateway: Gateway) -> None:
    count = scaled(1000, 200, 100)
    with recording() as copy:
        rules = [tuple(f"POST /{'x' * 60}/{at}/{number}/{{name}}" for number in range(20)) for at in range(count)]
        gateway.routes().declare(
            [Route(f"c{at}", f"shop/s{at}", f"127.0.0.1:{copy.port}", 1.0, paths=own) for at, own in enumerate(rules)]
        )
        last = Admitted(gateway, {})
        for at in (0, count // 2, count - 1):
            assert last.ask("POST", f"/shop/s{at}/{'x' * 60}/{at}/19/a") == 200
            assert last.ask("POST", f"/shop/s{at}/{'x' * 60}/{at + 1}/19/a") == 404
