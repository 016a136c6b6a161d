"""Whoever speaks to the sidecar: what it refuses, whom it believes, and that no body brings it down."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.gateway.api import LIMITS, serve
from agents.gateway.callers import Caller, parse_callers
from agents.gateway.client import SidecarRoutes
from agents.gateway.sidecar import AlreadyRunning, Sidecar, SidecarCondition
from agents.gateway.wire import DeclaredRoutes
from agents.http.threads import ThreadServer
from agents.seams.routes import Route, RoutesAway
from tests.agents.gateway.test_routes import answering
from tests.support.forked import ROOT
from tests.support.haproxy import ANY_PATH, Copies, Gateway, insist
from tests.support.patience import patience, until
from tests.support.ports import free_port

TOKENS = (
    "node-1 one-secret\nnode-2 two-secret\nnode-4 bound-secret 127.0.0.1 10.1.0.0/16 shop/search lab/*\n* all-secret\n"
)


@dataclass
class Spoken:
    status: int
    json: Any
    retry_after: str


@dataclass
class Api:
    gateway: Gateway
    server: ThreadServer
    folder: Path

    @property
    def port(self) -> int:
        return self.server.port

    def say(self, method: str, path: str, body: bytes = b"", token: str = "all-secret", length: str = "") -> Spoken:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience())
        try:
            headers = {"Authorization": f"Bearer {token}"} | ({"Content-Length": length} if length else {})
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            found = json.loads(text) if text[:1] in (b"{", b"[") else text.decode()
            return Spoken(answer.status, found, answer.headers.get("Retry-After", ""))
        finally:
            connection.close()

    def routes(self, source: str, token: str) -> SidecarRoutes:
        path = self.folder / "token"
        path.write_text(token + "\n")
        return SidecarRoutes(f"http://127.0.0.1:{self.port}", source, str(path))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The sidecar in this process, over TCP with tokens."""
    folder = tmp_path_factory.mktemp("api")
    gateway = Gateway(folder / "gateway")
    try:
        gateway.start_haproxy()
        sidecar = Sidecar(gateway.state, gateway.master, gateway.requests)
        server = serve(sidecar, "127.0.0.1:0", parse_callers(TOKENS))
        yield Api(gateway, server, folder)
        server.close()
        sidecar.close()
    finally:
        gateway.close()


def put(**route: Any) -> bytes:
    spec = {"copy": "c", "service": "shop/search", "address": "127.0.0.1:9001", "weight": 1} | route
    return json.dumps({"sequence": 10**9, "routes": [spec]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"{", b"\xff\xfe", b'{"sequence": -1}', b'{"sequence": 1e400}',
        b'{"sequence": 1.5}',
        b'{"sequence": ' + b"9" * 5000 + b"}", b"[" * 200_000, b'{"sequence": 1, "routes": ' + b"[" * 200_000,
        put(service="shop"), put(service="shop/search/x"), put(service="Shop/x"), put(service="a/b\n"),
        put(service="../x"), put(address="localhost:80"), put(address="127.0.0.1"), put(address="127.0.0.1:0"),
        put(address="127.0.0.1:99999"), put(address="::1:80"), put(address="127.0.0.1:80 backup"), put(address="[::1"),
        put(copy=""), put(copy="a b"), put(copy="x" * 101), put(copy="a\nserver evil 1.2.3.4:80"), put(weight=0),
        put(weight=-1), put(weight=1e300), put(weight="1"), put(drained="no"), put(copy=None),
        json.dumps({"sequence": 1, "routes": [json.loads(put())["routes"][0]] * 2}).encode(),
    ],
    ids=range(35),
)  # fmt: skip
def test_hostile_bodies_are_refused_and_change_nothing(api: Api, body: bytes) -> None:
    before = (api.gateway.state / "gpuwright.cfg").read_bytes()
    said = api.say("PUT", "/v1/routes/node-1", body)
    assert (said.status, said.json["reason"], said.retry_after) == (422, "malformed", "")
    assert (api.gateway.state / "gpuwright.cfg").read_bytes() == before


def test_a_body_that_is_too_large_or_of_no_length_is_not_read(api: Api) -> None:
    assert api.say("PUT", "/v1/routes/node-1", length=str(LIMITS.body_bytes + 1)).status == 413
    assert api.say("PUT", "/v1/routes/node-1", length="9" * 5000).status == 400
    assert api.say("PUT", "/v1/routes/node-1", length="-1").status == 400


@pytest.mark.parametrize("source", ["", "..", "a%2Fb", "A", "node_1", "x" * 64, "a%0Ab", "%C3%A9"])
def test_a_source_is_named_like_a_node(api: Api, source: str) -> None:
    assert api.say("PUT", f"/v1/routes/{source}", put()).status in (404, 422)


def test_a_token_speaks_for_its_own_source_alone(api: Api, copies: Copies) -> None:
    route = Route("c", "shop/search", f"127.0.0.1:{copies.ports[0]}", 1, paths=ANY_PATH)
    assert api.routes("node-1", "one-secret").declare([route]).routes[0].ready
    for source, token in (("node-2", "one-secret"), ("node-1", "two-secret")):
        with pytest.raises(RoutesAway, match="forbidden"):
            api.routes(source, token).declare([])
    assert api.say("PUT", "/v1/routes/node-2", put(), token="one-secret").status == 403
    assert api.say("GET", "/v1/counters", token="one-secret").status == 403
    assert api.say("GET", "/metrics", token="one-secret").status == 403
    assert api.say("GET", "/metrics?source=node-1", token="one-secret").status == 403, "it shows everybody's copies"
    for token in ("", "wrong", "one-secre", "one-secret2", "é"):
        assert api.say("GET", "/v1/routes", token=token).status == 401
    assert answering(api.gateway) == {copies.ports[0]: 8}
    assert api.routes("node-3", "all-secret").declare([]).routes == ()


def test_what_is_in_force_can_be_read_and_scraped(api: Api, copies: Copies) -> None:
    api.routes("node-1", "one-secret").declare(
        [Route('c"1', "shop/search", f"127.0.0.1:{copies.ports[0]}", 1, paths=ANY_PATH)]
    )
    held = api.say("GET", "/v1/routes?source=node-1").json["node-1"]["routes"]
    assert held == [{"copy": 'c"1', "ready": True, "openRequests": 0}]
    page = api.say("GET", "/metrics").json
    assert 'gpuwright_gateway_copy_ready{source="node-1",copy="c\\"1"} 1' in page
    assert 'gpuwright_gateway_service_latency_seconds_bucket{service="shop/search",le="0.0005"}' in page
    assert "\ngpuwright_gateway_lost_log_lines_total 0\n" in page
    assert len(list(text_string_to_metric_families(page))) == 16
    assert api.say("GET", "/healthz", token="").json == {"inForce": True, "haproxyProcesses": 1}
    assert api.say("GET", "/nothing").status == 404
    assert api.say("DELETE", "/v1/routes/node-1").status == 405


def test_the_trouble_of_haproxy_is_shown_to_a_token_of_everything_only(api: Api) -> None:
    secret = "process 7 of HAProxy has not applied: add server gw-0001/node-1:copy-1"
    condition = SidecarCondition(False, secret, 1, 1, 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Sidecar, "condition", lambda _: condition)
        for token, shown in (("all-secret", True), ("one-secret", False), ("unknown", False), ("", False)):
            answer = api.say("GET", "/healthz", token=token)
            assert (answer.status, answer.retry_after) == (503, "1")
            assert (secret in answer.json["message"]) is shown, token


def test_callers_who_say_nothing_do_not_keep_others_from_being_heard(api: Api) -> None:
    silent = [socket.create_connection(("127.0.0.1", api.port)) for _ in range(20)]
    for connection in silent:
        connection.sendall(b"PUT /v1/routes/node-1 HTTP/1.1\r\nContent-Length: 100\r\n")
    assert api.say("GET", "/healthz").status == 200
    for connection in silent:
        connection.close()


def test_callers_who_dawdle_are_hung_up_on_when_there_is_no_room(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.server, "limits", replace(LIMITS, connections=8, seconds=0.5))
    dawdling = [socket.create_connection(("127.0.0.1", api.port)) for _ in range(8)]

    def heard() -> bool:
        for connection in dawdling:
            with suppress(OSError):
                connection.sendall(b"G")
        try:
            return api.say("GET", "/healthz").status == 200
        except (OSError, http.client.HTTPException):
            return False

    until(heard, "one of them made room")
    for connection in dawdling:
        connection.close()


def test_a_caller_who_is_not_slow_is_not_hung_up_on_though_there_is_no_room(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.server, "limits", replace(LIMITS, connections=1))
    first = http.client.HTTPConnection("127.0.0.1", api.port, timeout=patience())

    def asks() -> int:
        first.request("GET", "/healthz")
        answer = first.getresponse()
        answer.read()
        return answer.status

    def has_room() -> bool:
        with suppress(OSError, http.client.HTTPException):
            return asks() == 200
        first.close()
        return False

    until(has_room, "those before have left")
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", api.port), timeout=patience()) as second:
            assert second.recv(1) == b"", "there is no room for another one"
    assert asks() == 200
    first.close()


@pytest.mark.slow
def test_over_tls_an_agent_is_heard_and_a_stranger_to_its_authority_speaks_to_nobody(
    gateway: Gateway, copies: Copies, tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=proxy"]
    subprocess.run([*words, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    (tmp_path / "tokens").write_text(TOKENS)
    (tmp_path / "token").write_text("one-secret\n")
    gateway.kill_sidecar()
    gateway.listen = f"127.0.0.1:{free_port()}"
    gateway.start_sidecar(
        "--listen", gateway.listen, "--token-file", str(tmp_path / "tokens"),
        "--tls-cert", str(certificate), "--tls-key", str(key),
    )  # fmt: skip
    address, token = f"https://{gateway.listen}", str(tmp_path / "token")
    routes = SidecarRoutes(address, "node-1", token, ca_file=str(certificate))
    assert insist(routes, [copies.route(0)]).routes[0].ready
    with pytest.raises(RoutesAway, match="CERTIFICATE_VERIFY_FAILED"):
        SidecarRoutes(address, "node-1", token).counters()
    with pytest.raises(RoutesAway):
        SidecarRoutes(f"http://{gateway.listen}", "node-1", token).counters()
    assert list(routes.counters()) == ["copy-0"]


def test_two_sidecars_do_not_write_one_haproxy(api: Api) -> None:
    with pytest.raises(AlreadyRunning):
        Sidecar(api.gateway.state, api.gateway.master, "127.0.0.1:0")


@pytest.mark.slow
def test_the_socket_is_its_owners_alone_and_ends_with_the_sidecar(gateway: Gateway) -> None:
    assert stat.S_IMODE(Path(gateway.listen).stat().st_mode) == 0o600
    assert gateway.sidecar
    gateway.sidecar.terminate()
    gateway.sidecar.wait(patience())
    assert not Path(gateway.listen).exists()


def test_a_token_file_is_read_by_lines() -> None:
    assert parse_callers("# nodes\nnode-1 a\n\nb\n") == {"a": Caller("node-1"), "b": Caller("*")}
    for text in ("", "# none\n"):
        with pytest.raises(ValueError, match="token"):
            parse_callers(text)
    for word in ("c", "10.0.0.1/8", "shop/", "/search", "shop/search/x", "10.0.0.1:9000"):
        with pytest.raises(ValueError, match="neither an address"):
            parse_callers(f"node-1 a {word}\n")


@pytest.mark.parametrize(
    ("route", "allowed"),
    [
        ({}, True),
        ({"address": "10.1.2.3:9001", "service": "lab/anything"}, True),
        ({"address": "10.2.0.1:9001"}, False),
        ({"address": "[::1]:9001"}, False),
        ({"service": "shop/other"}, False),
        ({"service": "lab2/x"}, False),
    ],
)
def test_a_token_may_be_bound_to_addresses_and_services(route: dict[str, str], allowed: bool) -> None:
    bound = parse_callers(TOKENS)["bound-secret"]
    assert (bound.objection(msgspec.json.decode(put(**route), type=DeclaredRoutes)) == "") == allowed


def test_a_source_declares_nothing_that_its_token_is_not_for(api: Api) -> None:
    said = api.say("PUT", "/v1/routes/node-4", put(service="shop/other"), token="bound-secret")
    assert (said.status, said.json["reason"]) == (403, "forbidden")
    assert "node-4" not in api.say("GET", "/v1/routes").json
    assert api.say("PUT", "/v1/routes/_node-4", put()).status == 422  # what the control plane says is not theirs to say


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "127.0.0.1:0"], "callers need a token"),
        (["--listen", "0.0.0.0:9444", "--token-file", "tokens"], "tokens need TLS"),
        (["--token-file", "missing"], "missing"),
    ],
)
def test_the_command_refuses_to_listen_openly(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "tokens").write_text("secret\n")
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "gateway", "run", "--folder", str(tmp_path / "f"), *words],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True,
        text=True, timeout=patience(),
    )  # fmt: skip
    assert (done.returncode, said in done.stderr, done.stdout) == (2, True, ""), done
