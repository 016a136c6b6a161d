"""Callers of services who want more than an answer: another's copies, or to command a copy."""

from __future__ import annotations

import socket

import pytest

from agents.seams.routes import Route
from agents.templates.reading import read
from tests.agents.programs.serve.running import PATH, serving
from tests.support.haproxy import ANY_PATH, Copies, Gateway, get
from tests.support.patience import patience
from tests.support.recorder import recording

COMMANDS = [
    ("POST", "/v1/drain"),
    ("POST", "/v1/%64rain"),
    ("POST", "/v1/drain?x=1"),
    ("PUT", "/v1/batch"),
    ("POST", "/v1/warmup"),
    ("GET", "/metrics"),
    ("POST", "/v2/repository/models/x/unload"),
    ("POST", "/v2/%72epository/models/x/unload"),
    ("POST", "/update_weights_from_disk"),
    ("GET", "/release_memory_occupation"),
    ("POST", "/scale_elastic_ep"),
]


def raw(gateway: Gateway, request: bytes) -> bytes:
    """All that HAProxy answers on one connection."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=patience()) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


@pytest.mark.slow
def test_whoever_may_ask_a_service_cannot_command_its_copies(gateway: Gateway) -> None:
    with serving("--latency=1:100=2") as copy:
        gateway.routes().declare(
            [Route("copy", "shop/search", f"127.0.0.1:{copy.port}", 1.0, paths=read()["gpuwright-serve"].form.paths)]
        )
        for method, path in COMMANDS:
            assert get(gateway, f"/shop/search{path}", method)[0] == 404, path
        assert get(gateway, f"/shop/search{PATH}", "POST")[0] == 200
        assert get(gateway, "/shop/search/healthz")[0] == 200
        assert copy.process.poll() is None


@pytest.mark.slow
def test_a_copy_that_is_the_gateway_itself_makes_no_loop(gateway: Gateway, copies: Copies) -> None:
    loop = Route("loop", "shop/loop", f"127.0.0.1:{gateway.port}", 1.0, paths=ANY_PATH)
    other = Route("other", "shop/other", f"127.0.0.1:{gateway.port}", 1.0, paths=ANY_PATH)
    gateway.routes().declare([loop, other, copies.route(0)])
    assert get(gateway, "/shop/loop/shop/loop/x")[0] == 508
    assert get(gateway, "/shop/loop/shop/other/shop/loop/x")[0] == 508
    service = copies.route(0).service
    assert get(gateway, f"/shop/loop/{service}/x")[0] == 200, "a service may ask another one through the gateway"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        b"GET /shop/search/../../bank/vault/x HTTP/1.1",
        b"GET /shop/search/%2e%2e/%2e%2e/bank/vault/x HTTP/1.1",
        b"GET http://bank/shop/search/bank/vault HTTP/1.1",
        b"GET /shop/search/x#/bank/vault HTTP/1.1",
        b"GET /shop/search/x;/bank/vault HTTP/1.1",
        b"GET //shop/search/x HTTP/1.1",
        b"GET /bank%2fvault/x HTTP/1.1",
        b"GET /bank/vault%00/x HTTP/1.1",
        b"GET /Bank/vault/x HTTP/1.1",
        b"GET /shop/search\\..\\bank\\vault HTTP/1.1",
    ],
)
def test_no_spelling_of_a_path_reaches_another_service(gateway: Gateway, copies: Copies, line: bytes) -> None:
    vault = Route("vault", "bank/vault", f"127.0.0.1:{copies.ports[1]}", 1.0, paths=ANY_PATH)
    gateway.routes().declare([copies.route(0), vault])
    before = copies.requests(1)
    raw(gateway, line + b"\r\nHost: bank\r\nX-Forwarded-Host: bank\r\nX-Original-URL: /bank/vault/x\r\n\r\n")
    assert copies.requests(1) == before
    assert get(gateway, "/bank/vault/x")[0] == 200


MALFORMED = [
    b"/v1/x%zz", b"/v1/x%", b"/v1/x%4", b"/v1/%g1", b"/v1/a%2fb", b"/v1/a%2Fb", b"/v1/a%5cb", b"/v1/a%25b", b"/v1/a%00",
    b"/v1/a%0ab", b"//v1/x", b"/v1//x", b"/v1/./x", b"/v1/../x", b"/v1/%2e%2E/x", b"/v1/.", b"/v1/..", b"/v1/x;y",
    b"/;/x", b"/v1\\x", b"/v1/x#y", b"/v1/%c0%afx", b"/v1/\xc3\xa9", b"/v1/<x>",
]  # fmt: skip


@pytest.mark.slow
def test_a_path_that_could_mean_several_things_is_refused_as_it_came(gateway: Gateway, copies: Copies) -> None:
    gateway.routes().declare([copies.route(0)])
    before = copies.requests(0)
    for path in MALFORMED:
        answer = raw(gateway, b"POST /shop/search" + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 "), path
    absolute = raw(gateway, b"GET http://x/shop/search/x HTTP/1.1\r\nHost: x\r\n\r\n")
    assert absolute.startswith(b"HTTP/1.1 400 ")
    long = raw(gateway, b"GET /shop/search/" + b"x" * 4000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert long.startswith(b"HTTP/1.1 400 ")
    assert copies.requests(0) == before
    for ordinary in ("/a%20b", "/%C3%A9", "/v1/models/m:infer", "/.well-known/x/", "/a+b,c=(d)@e!'f'~$&*", "/..x/y.."):
        assert get(gateway, f"/shop/search{ordinary}")[:2] == (200, f"{copies.ports[0]} {ordinary}"), ordinary


@pytest.mark.slow
def test_no_caller_changes_the_protocol(gateway: Gateway) -> None:
    """A server that switches would get requests that HAProxy never sees."""
    with recording() as server:
        gateway.routes().declare([Route("copy", "shop/search", f"127.0.0.1:{server.port}", 1.0, paths=ANY_PATH)])
        for protocol in (b"h2c", b"websocket"):
            raw(
                gateway,
                b"GET /shop/search/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                b"HTTP2-Settings: AAMAAABkAAQAAP__\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nUpgrade: "
                + protocol
                + b"\r\n\r\n",
            )
        requests = [head.lower() for head in server.heads]
        assert len(requests) == 2
        assert not [request for request in requests if b"upgrade" in request or b"http2-settings" in request]


@pytest.mark.slow
@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 0\r\nContent-Length: 44\r\n",
        b"Content-Length: +4\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Content-Length: 4\r\n Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    ],
)
def test_no_request_is_smuggled_in_anothers_body(gateway: Gateway, framing: bytes) -> None:
    """What is told apart differently before and behind HAProxy would be a request that it never saw."""
    with serving("--latency=1:100=2") as copy:
        gateway.routes().declare([Route("copy", "shop/search", f"127.0.0.1:{copy.port}", 1.0, paths=ANY_PATH)])
        head = b"POST /shop/search/v1/nothing HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n"
        raw(gateway, head + b"0\r\n\r\nPOST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert copy.ask("POST", PATH, b"x").status == 200  # drained, it would refuse
