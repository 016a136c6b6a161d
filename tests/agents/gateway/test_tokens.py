"""HAProxy sees the tokens of a language model's answers: the first, the pace of the others, and how many."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from agents.contract.gateways import EndpointCopy, Endpoints, LengthTotals, ServiceEndpoints, TokenTotals
from agents.gateway.balances import Balance, balance_of
from agents.gateway.desired import Desired, follow, give_slots
from agents.gateway.following import follow_endpoints
from agents.gateway.haproxy.parsing import parse_loads
from agents.gateway.prometheus import metrics
from agents.gateway.requests import GatewayPromise, Tallies
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import CountedRequests, ServiceLimit
from tests.agents.programs.serve.running import Copy, serving
from tests.support.haproxy import Gateway
from tests.support.patience import patience, until


def known(ttft_ms: float = 50.0, tpot_ms: float = 20.0) -> Tallies:
    tallies = Tallies()
    tallies.track({}, {"lab/chat": 49}, now=0, promises={"lab/chat": GatewayPromise(ttft_ms, tpot_ms)})
    return tallies


def counted(tallies: Tallies) -> CountedRequests:
    (found,) = tallies.counted()
    return found


@pytest.mark.parametrize(
    ("tokens", "late", "totals"),
    [
        ("40:15000:100:20", 0, TokenTotals(100, 20, 1, 0)),
        ("0:15000:100:20", 0, TokenTotals(100, 20, 1, 0)),
        ("60:15000:100:20", 1, TokenTotals(100, 20, 1, 0)),
        ("40:25000:100:20", 0, TokenTotals(100, 20, 1, 1)),
        ("40:-1:100:1", 0, TokenTotals(100, 1, 0, 0)),
    ],
)
def test_the_first_token_and_the_pace_are_compared_with_the_promise(
    tokens: str, late: int, totals: TokenTotals
) -> None:
    tallies = known()
    tallies.add(f"gw1 1 lab/chat n1:c 200 -- 5000 0 {tokens}".encode())
    assert (counted(tallies).timed, counted(tallies).late, counted(tallies).tokens) == (1, late, totals)


def test_only_answers_with_usage_say_how_long_requests_are() -> None:
    tallies = known()
    for tokens in ("40:15000:100:20", "40:15000:0:500", "40:-1:0:0", "-1:-1:300:10", "-"):
        tallies.add(f"gw1 1 lab/chat n1:c 200 -- 5000 0 {tokens}".encode())
    assert counted(tallies).lengths == LengthTotals(2, 400, 30)


def test_a_copy_that_lies_about_its_tokens_cannot_make_the_counts_of_all_services_unreadable() -> None:
    tallies = known()
    for _ in range(500):
        tallies.add(f"gw1 1 lab/chat n1:c 200 -- 5000 0 40:15000:{1 << 31}:{1 << 31}".encode())
    totals = counted(tallies).tokens
    assert totals is not None
    assert msgspec.convert(msgspec.to_builtins(totals), TokenTotals) == totals, "the control plane takes it"
    lengths = counted(tallies).lengths
    assert lengths is not None
    assert lengths.answers == 465, "a total that is full counts no further answers"
    assert msgspec.convert(msgspec.to_builtins(lengths), LengthTotals) == lengths


@pytest.mark.parametrize(("active_ms", "late"), [(430, 0), (431, 1)])
def test_an_answer_in_one_piece_has_the_time_of_its_first_token_and_of_the_pace_of_the_others(
    active_ms: int, late: int
) -> None:
    tallies = known()
    tallies.add(f"gw1 1 lab/chat n1:c 200 -- {active_ms} 0 -1:-1:100:20".encode())
    assert (counted(tallies).timed, counted(tallies).late) == (1, late)


@pytest.mark.parametrize("tokens", ["1:2:3", "1:2:3:x", "-2:0:0:0", "1:1:1:99999999999", "1:2:3:4:5", ""])
def test_malformed_tokens_are_refused(tokens: str) -> None:
    tallies = known()
    tallies.add(f"gw1 1 lab/chat n1:c 200 -- 5000 0 {tokens}".encode())
    assert (tallies.refused, counted(tallies).requests) == (1, 0)


def test_a_base_of_before_counts_requests_without_tokens() -> None:
    tallies = known()
    tallies.add(b"gw1 1 lab/chat n1:c 200 -- 40 0")
    assert (counted(tallies).requests, counted(tallies).tokens) == (1, None)


def test_a_language_model_gets_a_backend_that_goes_by_open_requests() -> None:
    limits = {"lab/chat": ServiceLimit(64, slo_ms=1000.0, tpot_ms=50.0), "shop/search": ServiceLimit(64, slo_ms=80.0)}
    slots = give_slots(follow(Desired(), {}, limits), idle=()).slots
    assert (balance_of(slots["lab/chat"]), balance_of(slots["shop/search"])) == (Balance.LEAST_TOKENS, Balance.IN_TURN)
    before = give_slots(follow(Desired(), {}, {"lab/chat": ServiceLimit(64, slo_ms=80.0)}), idle=())
    assert balance_of(give_slots(follow(before, {}, limits), idle=()).slots["lab/chat"]) is Balance.LEAST_TOKENS
    alike = {"lab/chat": ServiceLimit(64, slo_ms=1000.0, tpot_ms=50.0, by_prefix=True)}
    assert balance_of(give_slots(follow(before, {}, alike), idle=()).slots["lab/chat"]) is Balance.PREFIX


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Sidecar, Copy]]:
    with ExitStack() as stack:
        copy = stack.enter_context(serving("--cost", "baseMs=1,weightsMs=4,tokenMs=0.01", program="llm"))
        gateway = Gateway(tmp_path_factory.mktemp("tokens") / "gateway")
        stack.callback(gateway.close)
        gateway.start_haproxy()
        sidecar = Sidecar(gateway.state, gateway.master, gateway.requests)
        stack.callback(sidecar.close)
        copies = (EndpointCopy("c1", "node-1", f"127.0.0.1:{copy.port}"),)
        service = ServiceEndpoints("lab/chat", copies, 64, slo_ms=5000.0, percentile=95.0, tpot_ms=1000.0)
        followed = follow_endpoints(Endpoints(1, (service,)), loopback=True)
        sidecar.follow(followed)
        state = "_node-1:c1"
        until(lambda: (found := sidecar.in_force("_node-1")) is not None and found.routes[0].ready, f"{state} is ready")
        yield gateway, sidecar, copy


def ask(gateway: Gateway, tokens: int, stream: bool, usage: bool = False, prompt: str = "a b c") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=patience())
    try:
        body = {"prompt": prompt, "max_tokens": tokens, "stream": stream}
        body |= {"stream_options": {"include_usage": True}} if usage else {}
        connection.request("POST", "/lab/chat/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()
    finally:
        connection.close()


def service_totals(sidecar: Sidecar) -> CountedRequests:
    (found,) = [each for each in sidecar.counts().counted if not each.copy]
    return found


def test_streams_and_whole_answers_through_haproxy_are_measured(measured: tuple[Gateway, Sidecar, Copy]) -> None:
    gateway, sidecar, _ = measured
    stream = ask(gateway, 30, stream=True, usage=True)
    assert stream.count(b"data: ") == 30 + 2
    ask(gateway, 20, stream=True)
    ask(gateway, 10, stream=False)

    until(lambda: service_totals(sidecar).requests == 3, "all are counted")
    totals = service_totals(sidecar)
    # A stream without usage tells no tokens in; an answer in one piece has no pace.
    assert totals.tokens == TokenTotals(6, 60, 2, 0)
    assert (totals.timed, totals.late, totals.errors) == (3, 0, 0)
    assert 'gpuwright_gateway_service_tokens_out_total{service="lab/chat"} 60' in metrics(sidecar)
    (copy,) = [each for each in sidecar.counts().counted if each.copy]
    assert copy.tokens == totals.tokens


def test_a_caller_who_leaves_has_had_a_first_token(measured: tuple[Gateway, Sidecar, Copy]) -> None:
    gateway, sidecar, copy = measured
    before = service_totals(sidecar)
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=patience()) as connection:
        body = json.dumps({"prompt": "a", "max_tokens": 8000, "stream": True}).encode()
        head = b"POST /lab/chat/v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
        assert connection.recv(10).startswith(b"HTTP/1.1")
    aborted = b'vllm:request_success_total{finished_reason="abort",model_name="model"} 1'
    until(lambda: aborted in copy.ask("GET", "/metrics").body, "the copy stops computing")
    until(lambda: service_totals(sidecar).timed == before.timed + 1, "its first token was timed")
    assert service_totals(sidecar).late == before.late


@pytest.mark.slow
def test_requests_that_begin_alike_go_to_the_same_copy(tmp_path: Path) -> None:
    with ExitStack() as stack:
        words = ("--cost", "baseMs=1")
        copies = [stack.enter_context(serving(*words, program="llm")) for _ in range(3)]
        gateway = Gateway(tmp_path / "gateway")
        stack.callback(gateway.close)
        gateway.start_haproxy()
        sidecar = Sidecar(gateway.state, gateway.master, gateway.requests)
        stack.callback(sidecar.close)
        routed = tuple(EndpointCopy(f"c{at}", "node-1", f"127.0.0.1:{copy.port}") for at, copy in enumerate(copies))
        service = ServiceEndpoints("lab/chat", routed, 64, slo_ms=5000.0, tpot_ms=1000.0, by_prefix=True)
        followed = follow_endpoints(Endpoints(1, (service,)), loopback=True)
        sidecar.follow(followed)

        def all_ready() -> bool:
            found = sidecar.in_force("_node-1")
            return found is not None and len(found.routes) == 3 and all(route.ready for route in found.routes)

        until(all_ready, "the copies are ready")

        def none_open() -> bool:
            return not any(load.open for load in parse_loads(gateway.ask("show stat -1 6 -1")).values())

        def answered() -> list[int]:
            pages = [copy.ask("GET", "/metrics").body.decode() for copy in copies]
            found = [re.search(r"vllm:generation_tokens_total\S* (\d+)", page) for page in pages]
            return [int(each[1]) for each in found if each]

        before = answered()
        for question in range(10):
            # A caller has its answer a moment before HAProxy counts the request as ended. Until then the copy has
            # more than its part of the open requests, and the next request goes to another.
            until(none_open, "the request before has ended")
            ask(gateway, 1, stream=False, prompt="the same long beginning " * 40 + str(question))
        grown = sorted(after - earlier for earlier, after in zip(before, answered(), strict=True))
        assert grown == [0, 0, 10]
        for beginning in range(30):
            ask(gateway, 1, stream=False, prompt=f"{beginning} " * 300)
        assert all(after > earlier for earlier, after in zip(before, answered(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("digits", [10, 400])
def test_an_answer_whose_figures_are_no_counts_is_passed_on_and_counted_without_them(
    tmp_path: Path, digits: int
) -> None:
    body = b'{"usage": {"prompt_tokens": 7, "completion_tokens": %b}}' % (b"9" * digits)

    class Liar(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ExitStack() as stack:
        liar = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Liar))
        Thread(target=liar.serve_forever, daemon=True).start()
        stack.callback(liar.shutdown)
        gateway = Gateway(tmp_path / "gateway")
        stack.callback(gateway.close)
        gateway.start_haproxy()
        sidecar = Sidecar(gateway.state, gateway.master, gateway.requests)
        stack.callback(sidecar.close)
        copies = (EndpointCopy("c1", "node-1", f"127.0.0.1:{liar.server_port}"),)
        service = ServiceEndpoints("lab/chat", copies, 64, slo_ms=5000.0, tpot_ms=1000.0)
        followed = follow_endpoints(Endpoints(1, (service,)), loopback=True)
        sidecar.follow(followed)
        until(lambda: (found := sidecar.in_force("_node-1")) is not None and found.routes[0].ready, "it is ready")
        assert ask(gateway, 1, stream=False) == body
        until(lambda: service_totals(sidecar).requests == 1, "the request is counted")
        assert service_totals(sidecar).tokens == TokenTotals(7, 0, 0, 0)
