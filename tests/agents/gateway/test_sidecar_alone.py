"""The sidecar in this process, its API and its client, before sockets that stand for HAProxy."""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.contract.fields import LATENCY_EDGES_MS
from agents.gateway import api as answers
from agents.gateway import receiver as lines
from agents.gateway import sidecar as rooms
from agents.gateway.api import serve
from agents.gateway.callers import Caller, parse_callers
from agents.gateway.client import SidecarRoutes
from agents.gateway.desired import Desired
from agents.gateway.following import Followed
from agents.gateway.haproxy.configuration import LIMITS
from agents.gateway.haproxy.haproxy import Haproxy
from agents.gateway.haproxy.master_socket import HaproxyAway, MasterSocket
from agents.gateway.prometheus import metrics
from agents.gateway.receiver import Receiver
from agents.gateway.requests import Tallies
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit
from agents.http.threads import ThreadServer
from agents.seams.routes import Route, RoutesAway
from tests.support.haproxy import ANY_KEY, ANY_PATH, ANY_TABLE
from tests.support.patience import patience, until
from tests.support.runtime_haproxy import RuntimeHaproxy, runtime_haproxy

SERVICE = "shop/search"
TOKENS = "node-1 one-secret\nnode-2 two-secret 10.0.0.0/8 shop/*\n* all-secret\n"


class Site:
    """A sidecar, what stands for HAProxy, and the API over TCP with tokens."""

    def __init__(self, remote: RuntimeHaproxy, sidecar: Sidecar, server: ThreadServer) -> None:
        self.remote = remote
        self.sidecar = sidecar
        self.server = server
        self.port = server.port

    def say(
        self, method: str, path: str, body: bytes = b"", token: str = "all-secret", **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience())) as connection:
            lines = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"Authorization": f"Bearer {token}", **lines})
            answer = connection.getresponse()
            text = answer.read()
            found = json.loads(text) if text[:1] in (b"{", b"[") else text.decode()
            return answer.status, found, {name.lower(): value for name, value in answer.headers.items()}

    def put(self, source: str, token: str = "all-secret", sequence: int = 1, **route: Any) -> tuple[int, str]:
        spec = {"copy": "a", "service": SERVICE, "address": "10.0.0.1:80", "paths": ANY_KEY} | route
        body = {"sequence": sequence, "routes": [spec], "paths": ANY_TABLE}
        status, found, _ = self.say("PUT", f"/v1/routes/{source}", json.dumps(body).encode(), token)
        return status, found.get("reason", "")

    def raw(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience()) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            pieces = []
            while piece := connection.recv(65536):
                pieces.append(piece)
            return b"".join(pieces)

    def count_looks(self) -> int:
        return self.remote.commands.count("show proc")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(rooms, "WATCH_SECONDS", 0.03)
    with runtime_haproxy(tmp_path) as remote:
        Haproxy(MasterSocket(remote.path), remote.state, "127.0.0.1:1").write(Desired())
        remote.start_process()
        with closing(Sidecar(remote.state, remote.path, "127.0.0.1:0")) as sidecar:
            server = serve(sidecar, "127.0.0.1:0", parse_callers(TOKENS))
            until(lambda: sidecar.condition().in_force, "the first look is over")
            yield Site(remote, sidecar, server)
            server.close()


def spec(copy: str = "a", port: int = 80, service: str = SERVICE) -> RouteSpec:
    return RouteSpec(copy, service, f"10.0.0.1:{port}", paths=ANY_KEY)


def declared(sequence: int, *routes: RouteSpec) -> DeclaredRoutes:
    return DeclaredRoutes(sequence, routes, ANY_TABLE)


def test_each_caller_reads_and_declares_what_its_token_is_for(site: Site) -> None:
    assert site.put("node-1", "one-secret") == (200, "")
    assert site.put("node-2", "two-secret") == (200, "")
    cases: list[tuple[str, str, dict[str, Any], tuple[int, str]]] = [
        ("node-2", "one-secret", {}, (403, "forbidden")),
        ("node-2", "two-secret", {"service": "bank/vault"}, (403, "forbidden")),
        ("node-2", "two-secret", {"address": "11.0.0.1:80"}, (403, "forbidden")),
        ("node-1", "nobody", {}, (401, "unauthorized")),
        ("node-1", "", {}, (401, "unauthorized")),
        ("node-1", "one-secret", {"address": "10.0.0.1", "sequence": 2}, (422, "malformed")),
        ("node-1", "one-secret", {"copy": "b"}, (409, "stale")),
        ("node/1", "all-secret", {}, (404, "unknown")),
        ("", "all-secret", {}, (422, "malformed")),
    ]
    for source, token, change, expected in cases:
        assert site.put(source, token, **change) == expected, (source, token, change)
    both = {"node-1", "node-2"}
    for path, token, status, sources in [
        ("/v1/routes", "all-secret", 200, both),
        ("/v1/routes?source=node-2", "all-secret", 200, {"node-2"}),
        ("/v1/routes?source=node-9", "all-secret", 200, set()),
        ("/v1/routes?source=node-1", "one-secret", 200, {"node-1"}),
        ("/v1/routes", "one-secret", 403, None),
        ("/v1/routes?source=node-2", "one-secret", 403, None),
        ("/metrics?source=node-1", "one-secret", 403, None),
        ("/v2/routes", "all-secret", 404, None),
        ("/v1/routes/node-1", "all-secret", 404, None),
    ]:
        said, found, headers = site.say("GET", path, token=token)
        assert said == status, path
        assert headers["content-type"] == "application/json"
        if sources is not None:
            assert set(found) == sources
    assert "?source=node-1" in site.say("GET", "/v1/counters", token="one-secret")[1]["message"]
    assert site.say("GET", "/v1/counters?source=node-1", token="one-secret")[0] == 200
    said, page, headers = site.say("GET", "/metrics")
    assert (said, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert int(headers["content-length"]) == len(page)
    assert site.say("PUT", "/v1/routes", b"{}")[0] == 404
    assert site.say("PUT", "/v1/counters/x", b"{}")[0] == 404
    assert site.say("GET", "/v1/routes/x/y")[0] == 404


def test_a_body_has_a_length_that_is_true_and_not_too_large(site: Site) -> None:
    head = b"PUT /v1/routes/node-1 HTTP/1.1\r\nAuthorization: Bearer all-secret\r\n"
    for length, status in [
        (b"", b"411"),
        (b"Content-Length: x\r\n", b"400"),
        (b"Content-Length: \xb2\r\n", b"400"),
        (b"Content-Length: %d\r\n" % (answers.LIMITS.body_bytes + 1), b"413"),
        (b"Content-Length: 0000000000000000002\r\n", b"400"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", b"411"),
        (b"Content-Length: 9\r\n", b"400"),
    ]:
        answer = site.raw(head + length + b"\r\n{}")
        assert answer.split(b" ", 2)[1] == status, length
        assert b"\r\nConnection: close\r\n" in answer, "what follows is no request"
        assert answer.count(b"HTTP/1.1 ") == 1
    assert site.raw(head + b"Content-Length: 2\r\n\r\n{}").split(b" ", 2)[1] == b"422"
    kept = site.raw(b"GET /healthz HTTP/1.1\r\n\r\n" * 2)
    assert (kept.count(b"HTTP/1.1 200"), kept.count(b"Connection: close")) == (2, 0)


def test_who_may_read_all_reads_why_not_everything_is_in_force(site: Site) -> None:
    assert site.put("node-1") == (200, "")
    assert site.say("GET", "/healthz", token="")[:2] == (200, {"inForce": True, "haproxyProcesses": 1})
    site.remote.instead = lambda line: "No.\n\n" if "show map" in line else None
    assert site.put("node-1", sequence=2, copy="b") == (503, "not_in_force")
    for token, is_told in (("all-secret", True), ("one-secret", False), ("unknown", False), ("", False)):
        status, found, headers = site.say("GET", "/healthz", token=token)
        assert (status, headers["retry-after"], found["reason"]) == (503, "1", "not_in_force")
        assert ("show map" in found["message"]) is is_told
    assert site.sidecar.condition().workers == 0
    assert "Retry-After" not in site.say("GET", "/v1/routes", token="nobody")[2]


def test_without_tokens_whoever_reaches_the_socket_speaks_for_all(site: Site, tmp_path: Path) -> None:
    server = serve(site.sidecar, str(tmp_path / "s.sock"))
    routes = SidecarRoutes(f"unix:{tmp_path}/s.sock", "node-7")
    assert routes.declare([Route("a", SERVICE, "10.0.0.1:80", 1.0, paths=ANY_PATH)]).routes[0].ready
    server.close()
    with pytest.raises(RoutesAway, match="does not answer"):
        routes.counters()
    with suppress(OSError), closing(serve(site.sidecar, "[::1]:0")) as other:
        assert other.listener.family == socket.AF_INET6


def test_a_caller_without_room_is_hung_up_on_and_a_slow_one_makes_room(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.server, "limits", replace(answers.LIMITS, connections=2))

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", site.port), timeout=patience())

    def asks(connection: http.client.HTTPConnection) -> int:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        return answer.status

    with ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=patience())))
            for _ in range(2)
        )
        assert [asks(first), asks(second)] == [200, 200]
        with connect() as third:
            assert third.recv(1) == b""
        assert [asks(first), asks(second)] == [200, 200], "neither was slow"
        monkeypatch.setattr(site.server, "limits", replace(answers.LIMITS, connections=2, seconds=-1.0))
        with connect() as third:
            assert third.recv(1) == b"", "it makes room for the next one"
        assert first.sock.recv(1) == b"", "by hanging up on the first"


def test_a_client_speaks_for_its_source_and_goes_on_where_one_before_it_ended(site: Site, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("# of node-1\none-secret\n")
    one, two = (SidecarRoutes(f"http://127.0.0.1:{site.port}", "node-1", str(tmp_path / "token")) for _ in range(2))
    first = Route("a", SERVICE, "10.0.0.1:80", 1.0, paths=ANY_PATH)
    assert one.declare([first]).routes[0].ready
    assert site.sidecar.sources()["node-1"].sequence == 1
    assert one.declare([first]).routes[0].ready
    assert site.sidecar.sources()["node-1"].sequence == 1, "what is the same has the same number"
    assert two.declare([]).routes == ()
    assert site.sidecar.sources()["node-1"].sequence == 2
    with pytest.raises(RoutesAway, match=r"already declared sequence 2; .* \(stale\)"):
        one.declare([Route("b", SERVICE, "10.0.0.1:81", 1.0, paths=ANY_PATH)])
    assert one.declare([]).routes == ()
    assert site.sidecar.sources()["node-1"].sequence == 3
    assert one.counters().keys() == {"a"}
    for token in ("", "two-secret"):
        (tmp_path / "token").write_text(token)
        with pytest.raises(RoutesAway):
            one.counters()
    (tmp_path / "token").write_text("all-secret")
    assert SidecarRoutes(f"http://127.0.0.1:{site.port}", "new", str(tmp_path / "token")).declare([]).routes == ()
    with pytest.raises(RoutesAway, match="does not answer"):
        SidecarRoutes("http://127.0.0.1:1", "node-1").counters()
    with pytest.raises(RoutesAway, match="unauthorized"):
        SidecarRoutes(f"http://127.0.0.1:{site.port}", "node-1").declare([])


def test_what_is_declared_again_costs_haproxy_nothing_unless_it_has_changed(site: Site) -> None:
    site.sidecar.declare("node-1", declared(1, spec()))
    done = site.sidecar.condition().convergences
    looks = site.count_looks()
    until(lambda: site.count_looks() > looks + 5, "the watcher looks again and again")
    found = site.sidecar.declare("node-1", declared(1, spec()))
    assert [(route.copy, route.ready, route.open_requests) for route in found.routes] == [("a", True, 0)]
    assert site.sidecar.condition().convergences == done
    site.remote.now.backends["gw-0001"]["node-1:a"].open = 4
    assert site.sidecar.declare("node-1", declared(1, spec())).routes[0].open_requests == 4
    site.sidecar.follow(Followed({}, {}, ()))
    assert site.sidecar.condition().convergences == done
    assert site.sidecar.in_force("node-2") is None
    site.remote.start_process()
    until(lambda: site.sidecar.condition().workers == 2, "another process is looked at")
    assert site.sidecar.condition().convergences > done
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rooms, "VERIFY_SECONDS", -1.0)
        done = site.sidecar.condition().convergences
        until(lambda: site.sidecar.condition().convergences > done + 2, "it is verified now and then")


def test_a_declaration_is_in_force_though_another_process_has_just_come(site: Site) -> None:
    site.sidecar.declare("node-1", declared(1, spec()))
    with site.sidecar._lock:  # before the watcher sees it
        assert site.sidecar._still_in_force()
        site.remote.start_process()
        assert not site.sidecar._still_in_force(), "nobody has looked at the new one"
        site.remote.now.backends["gw-0001"].clear()
    assert site.sidecar.declare("node-1", declared(1, spec())).routes[0].ready
    assert "node-1:a" in site.remote.now.backends["gw-0001"]


def test_trouble_is_told_and_logged_once_and_so_is_its_end(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site.sidecar.declare("node-1", declared(1, spec()))
    assert site.sidecar.condition().trouble == ""
    done = site.sidecar.condition().convergences
    site.remote.instead = lambda line: ""
    for sequence, name in enumerate("bc", 2):
        with pytest.raises(HaproxyAway):
            site.sidecar.declare("node-1", declared(sequence, spec(name, service=f"shop/{name}")))
    assert site.sidecar.condition().failures == site.sidecar.condition().convergences - done > 0
    until(lambda: site.sidecar.condition().trouble == "the master closed the connection", "the watcher sees it")
    looks = site.count_looks()
    until(lambda: site.count_looks() > looks + 5, "it looks again and again")
    in_force = site.sidecar.in_force("node-1")
    assert in_force
    assert [(route.copy, route.ready, route.open_requests) for route in in_force.routes] == [("c", False, 0)]
    site.remote.instead = lambda line: None
    until(lambda: site.sidecar.condition().in_force, "it is over")
    until(lambda: "HAProxy has everything in force again" in caplog.text, "that is logged")
    assert caplog.text.count("HAProxy does not have everything in force: the master closed") == 1
    assert caplog.text.count("in force again") == 1
    assert site.sidecar.in_force("node-1").routes[0].ready  # type: ignore[union-attr]


def test_a_refused_copy_is_tried_again_more_and_more_rarely_and_at_once_by_a_new_process(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rooms, "LONGEST_RETRY_SECONDS", 4.0)
    site.remote.instead = lambda line: "Bad.\n" if "add server" in line and ":bad " in line else None
    found = site.sidecar.declare("node-1", declared(1, spec("bad"), spec("good", 81)))
    assert [route.ready for route in found.routes] == [False, True]
    assert [(each.node, each.copy) for each in site.sidecar.condition().left_out] == [("node-1", "bad")]
    assert "route node-1:bad is left out, because HAProxy refuses it: HAProxy answered 'Bad.' to" in caplog.text
    assert "bad" not in (site.remote.state / "desired.json").read_text()
    assert site.sidecar._retry_seconds == 1.0
    site.remote.start_process()
    until(lambda: site.sidecar._retry_seconds == 2.0, "a new process is asked at once")
    for _ in range(2):
        site.sidecar._retry_at = 0.0
        until(lambda: site.sidecar._retry_seconds == 4.0, "then less and less often")
    looks = site.count_looks()
    until(lambda: site.count_looks() > looks + 5, "it is not tried at every look")
    assert [each.copy for each in site.sidecar.condition().left_out] == ["bad"]
    site.remote.instead = lambda line: None
    site.sidecar._retry_at = 0.0
    until(lambda: not site.sidecar.condition().left_out, "it is accepted")
    until(lambda: site.sidecar._retry_seconds == 1.0, "the next one is tried again soon")


def test_lines_that_haproxy_could_not_send_are_counted_also_of_processes_that_are_gone(site: Site) -> None:
    assert site.sidecar.lost_lines() == 0
    site.remote.now.dropped_logs = 5
    until(lambda: site.sidecar.lost_lines() == 5, "they are lost")
    first = site.remote.now
    site.remote.start_process()
    site.remote.now.dropped_logs = 2
    until(lambda: site.sidecar.lost_lines() == 7, "those of both processes")
    site.remote.processes.remove(first)
    looks = site.count_looks()
    until(lambda: site.count_looks() > looks + 3, "the old one is gone")
    assert site.sidecar.lost_lines() == 7
    site.remote.instead = lambda line: "Name: HAProxy\n\n" if "show info" in line else None
    looks = site.count_looks()
    until(lambda: site.count_looks() > looks + 3, "it does not say so any more")
    assert site.sidecar.lost_lines() == 7
    assert site.sidecar.counts().lost_lines == 7


def test_what_waits_for_a_service_is_counted_with_it_and_limits_follow(site: Site) -> None:
    site.sidecar.declare("node-1", declared(1, spec()))
    assert {each.copy: each.open for each in site.sidecar.counts().counted} == {"a": 0, "": 0}
    site.sidecar.follow(Followed({}, {SERVICE: ServiceLimit(100, 0.5, 7, slo_ms=500.0)}, ()))
    site.remote.now.backends["gw-0001"]["node-1:a"].open = 6
    until(lambda: {each.copy: each.open for each in site.sidecar.counts().counted} == {"a": 0, "": 6}, "six are open")
    assert site.remote.now.maps[f"{site.remote.state}/{LIMITS}"] == {SERVICE: "500000:100:7:0"}
    assert [each.copy for each in site.sidecar.counts("node-1").counted] == ["a"]
    assert site.sidecar.counts("node-9").counted == ()


@pytest.mark.slow
def test_a_slot_is_given_to_another_service_only_when_nothing_is_in_it(site: Site) -> None:
    many = [spec(f"c{at}", 1000 + at, f"shop/s{at:02d}") for at in range(64)]
    site.sidecar.declare("node-1", declared(1, *many))
    site.sidecar.declare("node-1", declared(2, *many[1:]))
    site.remote.now.waiting["gw-0001"] = 1
    site.sidecar.declare("node-2", declared(1, spec("new", service="shop/new")))
    assert site.sidecar._desired.slot_count == 128, "a request waits there, which the last look did not see"
    assert site.sidecar._desired.slots["shop/s00"] == 1
    site.remote.now.waiting.clear()
    site.sidecar.declare("node-2", declared(2, spec("new", service="shop/new"), spec("b", 81, "shop/more")))
    assert site.sidecar.in_force("node-2").routes[1].ready  # type: ignore[union-attr]


def test_metrics_show_each_figure(site: Site) -> None:
    site.sidecar.declare("node-1", declared(1, spec()))
    for status, milliseconds in ((200, 0), (200, 12), (503, 3), (200, 10**9)):
        site.sidecar.tallies.add(f"gw1 7 {SERVICE} node-1:a {status} -- {milliseconds} 0".encode())
    site.sidecar.tallies.add(b"gw1 7 shop/unknown node-1:a 200 -- 1 0")
    site.sidecar.tallies.add(b"nonsense")
    site.sidecar.relief.most_open = {SERVICE: 9}
    site.remote.now.dropped_logs = 3
    until(lambda: site.sidecar.lost_lines() == 3, "lost lines are seen")
    found = {
        (sample.name.removeprefix("gpuwright_gateway_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics(site.sidecar))
        for sample in family.samples
    }
    assert {key: value for key, value in found.items() if key[0][-7:] != "_bucket" and key[0][:10] != "convergenc"} == {
        ("in_force",): 1, ("haproxy_processes",): 1, ("left_out_routes",): 0, ("failures_total",): 0,
        ("log_lines_total",): 6, ("lost_log_lines_total",): 3, ("refused_log_lines_total",): 1,
        ("unknown_service_total",): 1, ("copy_ready", "node-1", "a"): 1, ("copy_open_requests", "node-1", "a"): 0,
        ("service_overload_limit", SERVICE): 9, ("copy_requests_total", SERVICE, "node-1", "a"): 4,
        ("copy_errors_total", SERVICE, "node-1", "a"): 1, ("service_requests_total", SERVICE): 4,
        ("service_errors_total", SERVICE): 1, ("service_latency_seconds_count", SERVICE): 3,
    }  # fmt: skip
    buckets = [found["service_latency_seconds_bucket", SERVICE, f"{edge / 1000:.7g}"] for edge in LATENCY_EDGES_MS]
    assert buckets == [1 + (edge >= 12) for edge in LATENCY_EDGES_MS]
    assert found["service_latency_seconds_bucket", SERVICE, "+Inf"] == 3


def test_a_folder_is_made_whole_and_kept_by_one_sidecar(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with closing(Sidecar(folder, tmp_path / "none", "127.0.0.1:0")), pytest.raises(rooms.AlreadyRunning):
        Sidecar(folder, tmp_path / "none", "127.0.0.1:0")
    with closing(Sidecar(folder, tmp_path / "none", "127.0.0.1:0")) as again:
        assert again.condition().in_force is False


def test_lines_that_do_not_fit_are_lost_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lines, "BUFFER_BYTES", 4096)
    tallies = Tallies()
    receiver = Receiver("127.0.0.1:0", tallies)
    other = Receiver("127.0.0.1:0", Tallies())
    host, _, port = receiver.address.rpartition(":")
    with receiver.lock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as haproxy:
        for _ in range(200):
            haproxy.sendto(b"x", (host, int(port)))
    until(lambda: tallies.lines + receiver.count_overflowed() == 200, "all are read or lost")
    assert receiver.count_overflowed() > 0
    assert other.count_overflowed() == 0
    named = Receiver(str(tmp_path / "lines"), Tallies())
    assert (named.count_overflowed(), named.address) == (0, str(tmp_path / "lines"))
    for each in (receiver, other, named):
        each.close()
        assert not each._thread.is_alive()


def test_a_token_allows_one_source_or_all(site: Site) -> None:
    assert [Caller("a").speaks_for("a"), Caller("a").speaks_for("b"), Caller().speaks_for("b")] == [True, False, True]
