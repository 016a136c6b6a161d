"""What the gate lets through, in a real server: bodies, tokens, rates, lanes."""

from __future__ import annotations

import gzip
import os
import random
import socket
import time

import pytest

from tests.app.http.conftest import Answer, Running, Start, request
from tests.app.http.small_app import CANARY, token
from tests.support.patience import patience

MIB = 1024 * 1024
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def head(method: str, path: str, who: str = "admin", *lines: bytes) -> bytes:
    start = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token(who)}\r\n".encode()
    return start + b"".join(line + b"\r\n" for line in lines)


# Bodies


@pytest.mark.parametrize("size", [0, 1, 65_536, 262_145, 16 * MIB])
def test_a_body_within_the_limit_reaches_the_route_whole(server: Running, size: int) -> None:
    assert server.ask("POST", "/api/v1/apply", body=bytes(size)).json == {"bytes": size, "read": size}


def test_a_chunked_body_reaches_the_route_whole(server: Running) -> None:
    client = server.client()
    client.send(head("POST", "/api/v1/apply") + CHUNKED)
    for _ in range(100):
        client.send(chunk(b"x" * 10_000))
    client.send(b"0\r\n\r\n")
    assert client.answer().json == {"bytes": 1_000_000, "read": 1_000_000}


def test_a_declared_length_over_the_limit_is_refused_before_any_of_it_is_sent(server: Running) -> None:
    client = server.client()
    client.send(head("POST", "/api/v1/apply", "admin", b"Content-Length: %d" % (16 * MIB + 1)) + b"\r\n")
    answer = client.answer()
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert client.ended()


def test_a_client_that_expects_100_continue_is_refused_without_it(server: Running) -> None:
    client = server.client()
    lines = (b"Content-Length: 99999999", b"Expect: 100-continue")
    client.send(head("POST", "/api/v1/apply", "admin", *lines) + b"\r\n")
    assert client.answer().status == 413


@pytest.mark.parametrize(
    ("method", "path", "who", "limit"),
    [
        ("POST", "/api/v1/apply", "admin", 16 * MIB),
        ("PUT", "/api/v1/services/a", "admin", MIB),
        ("POST", "/api/v1/nodes/n1/report", "node", MIB),
        ("POST", "/api/v1/join", None, 64 * 1024),
        ("GET", "/healthz", None, 4096),
    ],
)
def test_each_path_has_its_own_limit(server: Running, method: str, path: str, who: str | None, limit: int) -> None:
    assert server.ask(method, path, who, bytes(limit)).status != 413
    assert server.ask(method, path, who, bytes(limit + 1)).status == 413


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False], ids=["with its length", "chunked"])
@pytest.mark.parametrize("who", ["admin", "nobody"])
def test_a_hundred_megabytes_are_refused_and_take_no_memory(server: Running, declared: bool, who: str) -> None:
    server.ask("POST", "/api/v1/apply", body=bytes(16 * MIB))  # what honest bodies take is not counted
    before = server.rss_bytes()
    statuses = []
    for _ in range(5):
        client = server.client()
        if declared:
            client.send(head("POST", "/api/v1/apply", who, b"Content-Length: 104857600") + b"\r\n")
            client.pour(bytes(100 * MIB))
        else:
            client.send(head("POST", "/api/v1/apply", who) + CHUNKED)
            client.pour(chunk(bytes(MIB)) * 100)
        statuses.append(client.answer().status)
    assert set(statuses) == {413 if who == "admin" else 401}
    assert server.rss_bytes() - before < 100 * MIB


def test_a_client_that_goes_on_sending_after_its_answer_is_cut_off(server: Running) -> None:
    client = server.client()
    client.send(head("POST", "/api/v1/apply", "admin", b"Content-Length: 1000000000") + b"\r\n")
    piece = bytes(4 * MIB)
    for _ in range(100):
        if client.pour(piece) < len(piece):
            return
    pytest.fail("400 MB went in")


@pytest.mark.slow
def test_hostile_bodies_from_many_connections_at_once_stay_within_the_memory_bound(start: Start) -> None:
    server = start(settings={"rate_burst": 10_000, "body_seconds": 5.0})
    server.ask("POST", "/api/v1/apply", body=bytes(1 * MIB))
    before = server.rss_bytes()
    clients = [server.client() for _ in range(60)]
    for number, client in enumerate(clients):
        client.socket.setblocking(False)
        lines = (b"Content-Length: %d" % (16 * MIB),) if number % 2 else (b"Transfer-Encoding: chunked",)
        client.socket.send(head("POST", "/api/v1/apply", "admin", *lines) + b"\r\n")
    piece, most = chunk(bytes(MIB)), 0
    for _ in range(15):
        for client in clients:
            try:
                client.socket.send(piece)
            except OSError:
                continue
        most = max(most, server.rss_bytes())
        assert server.ask("POST", "/api/v1/nodes/n1/report", "node", b"{}").status == 200
    assert most - before < 100 * MIB


def test_many_large_bodies_at_once_get_503_and_when_to_come_back(start: Start) -> None:
    server = start(settings={"body_seconds": 600.0}, capacity={"body_bytes": 4 * MIB, "body_bytes_each": 2 * MIB})
    holder = server.client()
    holder.send(head("POST", "/api/v1/apply", "admin", b"Content-Length: %d" % (2 * MIB)) + b"\r\n" + bytes(MIB))
    holder.send(bytes(MIB - 100_000))
    server.until_told("gpuwright_body_bytes 1.997152e+06")
    refused = server.ask("POST", "/api/v1/apply", "admin", bytes(300_000))
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert server.ask("POST", "/api/v1/apply", "other", bytes(2 * MIB)).status == 200  # nobody else suffers
    holder.send(bytes(100_000))
    assert holder.answer().status == 200
    assert server.ask("POST", "/api/v1/apply", "admin", bytes(300_000)).status == 200


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_that_trickles_in_gets_408_while_others_go_on(start: Start, chunked: bool) -> None:
    server = start(settings={"body_seconds": 0.5})
    lines = b"" if chunked else b"Content-Length: 1000\r\n\r\n"
    slow = [server.client() for _ in range(30)]
    for client in slow:
        client.send(head("POST", "/api/v1/apply") + (CHUNKED + chunk(b"a") if chunked else lines + b"a"))
    assert server.ask("GET", "/healthz", None).status == 200
    assert {client.answer().status for client in slow} == {408}
    assert all(client.ended() for client in slow)


def test_a_compressed_body_is_refused_unopened(server: Running) -> None:
    bomb = gzip.compress(bytes(10 * MIB))
    for encoding in ("gzip", "deflate", "br", "zstd", "identity, gzip"):
        answer = server.ask("POST", "/api/v1/apply", body=bomb, Content_Encoding=encoding)
        assert answer.status == 415
    assert answer.headers["accept-encoding"] == "identity"
    assert server.ask("POST", "/api/v1/apply", body=b"{}", Content_Encoding="identity").status == 200


def test_a_client_that_leaves_in_the_middle_of_its_body_costs_nothing(start: Start) -> None:
    server = start(capacity={"body_bytes": 2 * MIB, "body_bytes_each": 2 * MIB})
    for _ in range(5):
        client = server.client()
        client.send(head("POST", "/api/v1/apply", "admin", b"Content-Length: %d" % (2 * MIB)) + b"\r\nabc")
        client.close()
    while server.ask("POST", "/api/v1/apply", body=bytes(2 * MIB)).status != 200:
        time.sleep(0.05)
    assert any(line.get("status") == 499 for line in server.log())


# Who asks


@pytest.mark.parametrize("path", ["/api/v1/services", "/api/v1/apply", "/metrics", "/nowhere", "/openapi"])
def test_without_a_token_everything_is_401(server: Running, path: str) -> None:
    answer = server.ask("GET", path, None)
    assert answer.status == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert "www-authenticate" in answer.headers
    assert answer.json["instance"] == path


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic eDp5", "x" * 5000, "Bearer \xff\xfe"])
def test_an_authorization_that_is_no_token_of_ours_is_401(server: Running, value: str) -> None:
    assert server.ask("GET", "/api/v1/services", None, Authorization=value).status in (400, 401)


def test_probes_and_joins_need_no_token(server: Running) -> None:
    assert server.ask("GET", "/healthz", None).status == 200
    assert server.ask("POST", "/api/v1/join", None, b"{}").status == 409  # the route's own answer
    assert server.ask("GET", "/api/v1/join", None).status == 401


def test_metrics_want_an_untenanted_token_unless_they_are_open(server: Running, start: Start) -> None:
    statuses = {who: server.ask("GET", "/metrics", who).status for who in ("admin", "viewer", "tenant", "node")}
    assert statuses == {"admin": 200, "viewer": 200, "tenant": 403, "node": 403}
    assert start(settings={"open_metrics": True}).ask("GET", "/metrics", None).status == 200


def test_guessing_tokens_slows_the_guesser_down_and_nobody_else(start: Start) -> None:
    server = start(capacity={"peer_failures_burst": 5, "peer_failures_per_second": 0.001})
    assert server.ask("GET", "/api/v1/services").status == 200
    statuses = [server.ask("GET", "/api/v1/services", f"guess{number}").status for number in range(10)]
    assert statuses == [401] * 5 + [429] * 5
    assert server.ask("GET", "/api/v1/services").status == 200  # from the same address, with a known token


def test_a_guesser_behind_a_trusted_proxy_is_slowed_down_and_nobody_else_there(start: Start) -> None:
    few = {"peer_failures_burst": 5, "peer_failures_per_second": 0.001}

    def statuses(server: Running, said: str, *who: str) -> list[int]:
        return [server.ask("GET", "/api/v1/services", one, x_forwarded_for=said).status for one in who]

    guesses = [f"guess{number}" for number in range(7)]
    server = start(settings={"trusted_proxies": "127.0.0.1, 10.1.0.0/16"}, capacity=few)
    # What a guesser writes itself stands before what the proxies add.
    assert statuses(server, "198.51.100.7, 203.0.113.5, 10.1.2.3", *guesses) == [401] * 5 + [429] * 2
    assert statuses(server, "203.0.113.5", "other") == [429]
    assert statuses(server, "198.51.100.7", "admin") == [200]
    server = start(capacity=few)  # which trusts nobody
    assert statuses(server, "203.0.113.5", *guesses) == [401] * 5 + [429] * 2
    assert statuses(server, "198.51.100.7", "admin") == [429]


def test_open_metrics_are_limited_by_address(start: Start) -> None:
    server = start(settings={"open_metrics": True}, capacity={"peer_burst": 5, "peer_per_second": 0.001})
    assert [server.ask("GET", "/metrics", None).status for _ in range(7)] == [200] * 5 + [429] * 2


def test_slow_joins_from_one_address_keep_no_node_elsewhere_from_joining(start: Start) -> None:
    server = start(settings={"body_seconds": 600.0}, capacity={"anonymous_bodies_each": 4})
    slow = [server.client() for _ in range(4)]
    for client in slow:
        client.send(head("POST", "/api/v1/join", "nobody", b"Content-Length: 65536") + b"\r\n{")
    server.until_told("gpuwright_requests_in_flight 5.0")
    assert server.ask("POST", "/api/v1/join", None, b"{}").status == 503  # this address has its share
    with socket.create_connection(
        ("127.0.0.1", server.port), timeout=patience(), source_address=("127.0.0.2", 0)
    ) as other:
        other.sendall(head("POST", "/api/v1/join", "nobody", b"Content-Length: 2") + b"\r\n{}")
        assert other.recv(4096).startswith(b"HTTP/1.1 409")  # the route's own answer
    for client in slow:
        client.close()


def test_case_22_bodies_that_are_declared_and_never_sent_take_no_place_of_others(start: Start) -> None:
    server = start(
        settings={"body_seconds": 600.0}, capacity={
            "body_bytes": 4 * MIB, "body_bytes_each": 2 * MIB, "node_body_bytes": MIB, "node_body_bytes_each": MIB,
            "anonymous_body_bytes": 128 * 1024, "anonymous_body_bytes_each": 64 * 1024,
        },
    )  # fmt: skip
    declared = [server.client() for _ in range(10)]
    for number, client in enumerate(declared):
        who = ("admin", "tenant")[number % 2]
        client.send(head("POST", "/api/v1/apply", who, b"Content-Length: %d" % (2 * MIB)) + b"\r\n{")
    addresses = [f"127.0.0.{2 + number // 2}" for number in range(8)]
    joins = [socket.create_connection(("127.0.0.1", server.port), 30, (address, 0)) for address in addresses]
    for join in joins:
        join.sendall(head("POST", "/api/v1/join", "nobody", b"Content-Length: 65536") + b"\r\n{")
    server.until_told("gpuwright_requests_in_flight 19.0")
    assert server.ask("POST", "/api/v1/apply", "other", bytes(2 * MIB)).status == 200
    assert server.ask("POST", "/api/v1/nodes/n1/report", "node", bytes(MIB)).status == 200
    assert server.ask("POST", "/api/v1/join", None, bytes(60_000)).status == 409  # the route's own answer
    for client in declared:
        client.close()
    for join in joins:
        join.close()


def test_an_address_has_only_so_many_bodies_arriving_at_once(start: Start) -> None:
    server = start(settings={"body_seconds": 600.0}, capacity={"anonymous_bodies_each": 2})
    slow = [server.client() for _ in range(2)]
    for client in slow:
        client.send(head("POST", "/api/v1/join", "nobody", b"Content-Length: 10") + b"\r\n{")
    server.until_told("gpuwright_requests_in_flight 3.0")
    refused = server.ask("POST", "/api/v1/join", None, b"{}")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    for client in slow:
        client.send(b"}" * 9)
        assert client.answer().status == 409
    assert server.ask("POST", "/api/v1/join", None, b"{}").status == 409


def test_case_22_a_body_slower_than_the_least_rate_is_cut_before_the_time_for_bodies_is_over(start: Start) -> None:
    server = start(settings={"body_seconds": 4.0})
    slow = server.client()
    slow.send(head("POST", "/api/v1/apply", "admin", b"Content-Length: 1000000") + b"\r\n" + bytes(200_000))
    answer = slow.answer()
    assert answer.status == 408
    assert answer.json["detail"] == "the body arrived slower than 64 KiB in 1 seconds"


def test_failed_joins_count_as_guesses(start: Start) -> None:
    server = start(capacity={"peer_failures_burst": 3, "peer_failures_per_second": 0.001})
    statuses = [server.ask("POST", "/api/v1/join", None, b"{}").status for _ in range(5)]
    assert statuses == [409] * 3 + [429] * 2


# Ids and odds


def ids(answer: Answer) -> str:
    return answer.headers["x-request-id"]


def test_a_sane_request_id_is_kept_and_any_other_replaced(server: Running) -> None:
    assert ids(server.ask("GET", "/healthz", None, X_Request_Id="abc-123")) == "abc-123"
    for odd in (token("admin"), "a b", "x" * 200, "<script>", "-x", "{}"):
        made = ids(server.ask("GET", "/healthz", None, X_Request_Id=odd))
        assert made != odd
        assert len(made) == 16
    assert server.ask("GET", "/nowhere", X_Request_Id="abc-124").json["requestId"] == "abc-124"


@pytest.mark.parametrize("path", ["/a%00b", "/a%0d%0aSet-Cookie:x", "/a%1b[2J", "/a?x=%00", "/%e2%80%ae"])
def test_control_characters_in_a_path_are_refused_and_not_sent_back(server: Running, path: str) -> None:
    answer = server.ask("GET", path)
    assert answer.status == 400
    assert answer.body.isascii()
    assert answer.body.decode().isprintable()
    assert "set-cookie" not in answer.headers


def test_a_token_in_a_path_is_not_sent_back(server: Running) -> None:
    answer = server.ask("GET", f"/api/v1/{token('admin')}")
    assert answer.status == 404
    assert CANARY not in answer.body.decode()


def test_head_requests_get_no_body(server: Running) -> None:
    client = server.client()
    client.send(request("HEAD", "/api/v1/services", None))
    client.send(request("GET", "/healthz", None))
    raw = b""
    while raw.count(b"HTTP/1.1") < 2:
        raw += client.socket.recv(65536)
    assert b"\r\n\r\nHTTP/1.1 200" in raw


def test_random_bytes_never_get_a_5xx(server: Running) -> None:
    noise = random.Random(7)
    for _ in range(200):
        client = server.client()
        valid = bytearray(request("POST", "/api/v1/apply", "admin", b'{"a": 1}'))
        for _ in range(noise.randrange(1, 6)):
            valid[noise.randrange(len(valid))] = noise.randrange(256)
        client.send(bytes(valid))
        client.socket.shutdown(1)
        assert client.answer().status < 500
        client.close()
    assert server.ask("GET", "/healthz", None).json["pid"] != os.getpid()
