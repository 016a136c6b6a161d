"""Requests are sent when they are due, whatever became of earlier ones, and each is reported once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from simulation.real.load_generator import LoadGenerator, LoadSource, drawn_tokens
from simulation.real.open_loop import RequestSender, TimedAnswer, percentile, send_when_due
from simulation.shapes import steady
from tests.support.patience import patience

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def answering(*answers: bytes) -> Serve:
    """Answers the requests of a connection in turn, and closes it after the last."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        writer.close()

    return serve


async def sent(serve: Serve, count: int, *, connections: int = 1, early_seconds: float = 0.0) -> list[TimedAnswer]:
    """What became of so many requests that were due so long ago."""
    found: list[TimedAnswer] = []
    async with serving(serve) as port:
        sender = RequestSender("127.0.0.1", port, found.append, connections=connections, timeout_seconds=patience())
        due = time.monotonic() - early_seconds
        await send_when_due([due] * count, lambda due: sender.send(due, REQUEST))
        await sender.settle(patience())
    return found


def test_requests_that_are_due_do_not_wait_for_answers_to_others() -> None:
    async def run() -> int:
        together = asyncio.Event()
        waiting = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal waiting
            await reader.readuntil(b"\r\n\r\n")
            waiting += 1
            if waiting == 3:
                together.set()
            await together.wait()
            writer.write(OK)
            writer.close()

        return sum(answer.status == 200 for answer in await sent(serve, 3, connections=3))

    assert asyncio.run(run()) == 3


def test_latency_counts_from_when_a_request_was_due() -> None:
    (answer,) = asyncio.run(sent(answering(OK), 1, early_seconds=1000.0))
    assert (answer.status, answer.body) == (200, b"ok")
    assert answer.latency_ms >= 1_000_000


def test_a_connection_that_ends_is_a_failed_request_and_the_next_opens_another() -> None:
    answers = asyncio.run(sent(answering(b"HTTP/1.1 200"), 2))
    assert [answer.status for answer in answers] == [0, 0]
    assert answers[0].problem == "closed with 12 bytes of an answer: end of stream"


@pytest.mark.parametrize(
    "answer",
    [OK, b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
)
def test_a_connection_is_used_again_after_a_whole_answer(answer: bytes) -> None:
    answers = asyncio.run(sent(answering(answer, answer, answer), 3))
    assert [answer.problem for answer in answers] == ["", "", ""]


def test_a_request_that_finds_no_server_fails() -> None:
    async def run() -> list[TimedAnswer]:
        found: list[TimedAnswer] = []
        async with serving(answering()) as port:
            pass
        sender = RequestSender("127.0.0.1", port, found.append, connections=2, timeout_seconds=patience())
        for _ in range(3):
            sender.send(time.monotonic(), REQUEST)
        await sender.settle(patience())
        return found

    answers = asyncio.run(run())
    assert [answer.status for answer in answers] == [0, 0, 0]
    assert all(answer.problem.startswith("connect: ") for answer in answers)


def test_an_answer_that_takes_too_long_is_a_timeout() -> None:
    async def run() -> list[TimedAnswer]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        found: list[TimedAnswer] = []
        async with serving(serve) as port:
            sender = RequestSender("127.0.0.1", port, found.append, timeout_seconds=0.05)
            sender.send(time.monotonic(), REQUEST)
            await sender.settle(patience())
        return found

    assert [answer.problem for answer in asyncio.run(run())] == ["timeout"]


def test_a_load_generator_waits_until_a_service_is_served_and_counts_from_then_on() -> None:
    async def run() -> LoadGenerator:
        served = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal served
            while True:
                try:
                    await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(len(b'{"inputs": [[1.0]]}'))
                except asyncio.IncompleteReadError:
                    return writer.close()
                served += 1
                writer.write(OK if served > 1 else b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n")

        async with serving(serve) as port:
            generator = LoadGenerator("127.0.0.1", port, LoadSource("shop/search", "/x", 200.0, steady))
            running = asyncio.create_task(generator.run())
            async with asyncio.timeout(patience()):
                while served < 10 or generator.answered < 5:
                    await asyncio.sleep(0.01)
            running.cancel()
        return generator

    generator = asyncio.run(run())
    assert generator.answered >= 5
    assert generator.failed == 0


def test_a_percentile_of_nothing_is_0() -> None:
    assert percentile([], 99) == 0.0
    assert percentile([1.0, 2.0, 3.0], 99.9) == 3.0


def test_lengths_of_requests_have_the_declared_mean_and_95th_percentile() -> None:
    rng = random.Random(1)
    drawn = sorted(drawn_tokens(250, 600, rng) for _ in range(20_000))
    assert sum(drawn) / len(drawn) == pytest.approx(250, rel=0.03)
    assert drawn[19_000] == pytest.approx(600, rel=0.05)
    assert drawn[0] >= 1
