"""A served model asked in a closed loop: a real gpuwright-serve, and servers that answer wrongly."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agents.contract.campaigns import CopySetting
from agents.profiling.at_url import ModelAtUrl
from agents.profiling.batches import TimingEffort, time_batches
from agents.profiling.closed_loop import ClosedLoop, LoopFailed
from agents.profiling.example import ExampleRequest, parse_example
from tests.agents.programs.serve.running import PATH, serving

QUICK = TimingEffort(0.5, 0.0, 5.0)


def test_batches_are_full_and_timed_by_the_servers_own_clock() -> None:
    with serving("--latency", "1:5;8:12", "--max-batch", "8", "--memory-gib", "1.25") as copy:
        server = ModelAtUrl(f"http://127.0.0.1:{copy.port}")
        found = server.batch_range()
        assert (found.batch, found.largest) == (1, 8)
        measured = server.measure(1, CopySetting(8, 100.0, 1000), found, QUICK)
        server.restore(found)
        assert copy.served().batch_mean == 8.0
        assert copy.ask("GET", "/v1/batch").json == {"batch": 1, "batchTimeoutMs": 0.0, "maxBatch": 8}
    assert measured.latency_ms >= 12 * 0.99
    assert (measured.source, measured.memory_gib) == ("server", 1.25)
    assert measured.samples >= 10


@pytest.mark.slow
def test_a_setting_is_measured_for_its_least_time_even_if_that_is_more_than_its_most() -> None:
    with serving("--latency", "1:1") as copy:
        example = parse_example(copy.ask("GET", "/v1/example").body)
        request = example.spell("127.0.0.1", copy.port)
        elapsed: list[float] = []
        with ClosedLoop("127.0.0.1", copy.port, request, 1) as loop:
            time_batches(loop, copy.served, TimingEffort(0.5, 1.0, 0.5), elapsed.append)
    assert elapsed[-1] >= 1.0


def test_a_server_that_its_agent_controls_is_measured_at_batch_1() -> None:
    token = {"GPUWRIGHT_CONTROL_TOKEN": "secret"}
    with serving("--latency", "1:5;8:12", "--batch", "8", environment=token) as copy:
        server = ModelAtUrl(f"http://127.0.0.1:{copy.port}")
        found = server.batch_range()
        assert found.largest == 1
        measured = server.measure(1, CopySetting(1, 100.0, 1000), found, QUICK)
    assert measured.samples >= 10


def test_a_refused_request_is_named() -> None:
    with serving("--queue", "1", "--latency", "1:5") as copy:
        request = ExampleRequest("/v1/models/other:infer", b"{}").spell("127.0.0.1", copy.port)
        with ClosedLoop("127.0.0.1", copy.port, request, 1) as loop, pytest.raises(LoopFailed, match="answered 404"):
            loop.ask()


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "https://127.0.0.1:8000", "http://127.0.0.1", "http://h:99999", "http://h:1/v1"]
)
def test_a_url_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(LoopFailed, match="http://HOST:PORT"):
        ModelAtUrl(url)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b'{"path": 1}',
        b'{"path": "x", "body": {}}',
        b'{"path": "/a b", "body": {}}',
        b'{"path": "/a"}',
        b"\xff",
    ],
)
def test_an_example_that_cannot_be_sent_is_refused(answer: bytes) -> None:
    with pytest.raises(LoopFailed, match="example request"):
        parse_example(answer)


def test_the_example_of_the_stub_is_what_it_answers() -> None:
    with serving("--latency", "1:5") as copy:
        example = parse_example(copy.ask("GET", "/v1/example").body)
        assert example.path == PATH
        assert copy.ask("POST", example.path, example.body).status == 200


@contextmanager
def answering(raw: bytes) -> Iterator[int]:
    """A server that sends these bytes to every request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(raw)
            self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "closed a connection"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "closed a connection"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 3\r\n\r\nbad", "answered 503: bad"),
        (b"HELLO\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", "Content-Length"),
        (b"x" * 70_000, "no end of its header"),
    ],
)
def test_a_server_that_answers_wrongly_is_named(raw: bytes, words: str) -> None:
    with answering(raw) as port:
        request = ExampleRequest("/x", b"{}").spell("127.0.0.1", port)
        with ClosedLoop("127.0.0.1", port, request, 2) as loop, pytest.raises(LoopFailed, match=words):
            loop.ask()


def test_nobody_listens() -> None:
    with pytest.raises(LoopFailed, match=r"/v1/batch at 127\.0\.0\.1:1 did not answer"):
        ModelAtUrl("http://127.0.0.1:1").batch_range()
    with pytest.raises(LoopFailed, match="cannot be reached"), ClosedLoop("127.0.0.1", 1, b"", 1):
        pass
